/* Stands in for ROCm's libamd_smi.so, below the real amdsmi.
 *
 * Signatures, structures and units follow amdsmi.h (https://rocm.docs.amd.com/projects/amdsmi/, "C++ API"). The Python
 * package binds every function when it is imported: those that aren't here answer "not supported", in a file that the
 * fixture makes (AMDSMI_STATUS_NOT_SUPPORTED, 2).
 */
#include "knobs.h"

typedef unsigned int amdsmi_status_t;
typedef void *handle_t;
enum { SUCCESS = 0, INVALID = 1, NOT_SUPPORTED = 2 };

static double begun;

static int gpu_of(handle_t handle) { return (int)(intptr_t)handle - 1; }

#define GPU_OR_RETURN(function)                                   \
    int gpu = gpu_of(handle), error = trouble(function, gpu);     \
    if (error)                                                    \
        return (amdsmi_status_t)error

amdsmi_status_t amdsmi_init(uint64_t flags)
{
    (void)flags;
    begun = seconds();
    return (amdsmi_status_t)trouble("init", 0);
}

amdsmi_status_t amdsmi_shut_down(void) { return SUCCESS; }

void amdsmi_free_name_value_pairs(void *pairs) { (void)pairs; }

/* A socket for each GPU. */
amdsmi_status_t amdsmi_get_socket_handles(uint32_t *count, handle_t *sockets)
{
    uint32_t i;
    *count = (uint32_t)value_of("count", 0, 1);
    for (i = 0; sockets && i < *count; i++)
        sockets[i] = (handle_t)(intptr_t)(i + 1);
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_processor_handles(handle_t socket, uint32_t *count, handle_t *processors)
{
    *count = 1;
    if (processors)
        processors[0] = socket;
    return SUCCESS;
}

/* Percent; 0xFFFF where a GPU has none. */
amdsmi_status_t amdsmi_get_gpu_activity(handle_t handle, uint32_t usage[16])
{
    GPU_OR_RETURN("activity");
    usage[0] = (uint32_t)value_of("utilization", gpu, 50);
    usage[1] = (uint32_t)value_of("bandwidth", gpu, 25);
    usage[2] = 0xFFFF;
    return SUCCESS;
}

/* Bytes; type 0 is VRAM. */
amdsmi_status_t amdsmi_get_gpu_memory_total(handle_t handle, uint32_t type, uint64_t *bytes)
{
    GPU_OR_RETURN("memory");
    *bytes = (uint64_t)value_of("total", gpu, 206141652992);
    return type == 0 ? SUCCESS : NOT_SUPPORTED;
}

amdsmi_status_t amdsmi_get_gpu_memory_usage(handle_t handle, uint32_t type, uint64_t *bytes)
{
    GPU_OR_RETURN("memory");
    *bytes = (uint64_t)value_of("used", gpu, 20000000000);
    return type == 0 ? SUCCESS : NOT_SUPPORTED;
}

struct power_info {
    uint64_t socket_power;         /* W */
    uint32_t current_socket_power; /* W, MI300 and later; else UINT32_MAX or 0xFFFF */
    uint32_t average_socket_power; /* W, up to MI200 and Navi */
    uint64_t gfx_voltage, soc_voltage, mem_voltage; /* mV */
    uint32_t power_limit;          /* W */
    uint64_t reserved[18];
};

amdsmi_status_t amdsmi_get_power_info(handle_t handle, struct power_info *info)
{
    GPU_OR_RETURN("power");
    memset(info, 0, sizeof *info);
    info->current_socket_power = (uint32_t)value_of("current_power", gpu, 600);
    info->average_socket_power = (uint32_t)value_of("average_power", gpu, 0xFFFF);
    info->power_limit = (uint32_t)value_of("limit_w", gpu, 750);
    return SUCCESS;
}

struct power_cap { uint64_t power_cap, default_cap, dpm_cap, min_cap, max_cap, reserved[3]; };

/* Microwatts. */
amdsmi_status_t amdsmi_get_power_cap_info(handle_t handle, uint32_t sensor, struct power_cap *cap)
{
    GPU_OR_RETURN("cap");
    (void)sensor;
    memset(cap, 0, sizeof *cap);
    cap->power_cap = (uint64_t)value_of("cap", gpu, 750000000);
    return SUCCESS;
}

/* Degrees Celsius; sensor 0 is the edge, 1 the hottest spot. */
amdsmi_status_t amdsmi_get_temp_metric(handle_t handle, uint32_t sensor, uint32_t metric, int64_t *temperature)
{
    GPU_OR_RETURN(sensor == 0 ? "edge" : "junction");
    (void)metric;
    *temperature = value_of(sensor == 0 ? "edge" : "junction", gpu, sensor == 0 ? 55 : 70);
    return SUCCESS;
}

/* A count, and what one of it is worth in microjoules (15.259 since MI200). */
amdsmi_status_t amdsmi_get_energy_count(handle_t handle, uint64_t *count, float *resolution, uint64_t *timestamp)
{
    GPU_OR_RETURN("energy");
    *resolution = 15.259F;
    *count = (uint64_t)value_of("energy", gpu, (long long)((seconds() - begun) * 600 * 1e6 / 15.259));
    *timestamp = (uint64_t)(seconds() * 1e9);
    return SUCCESS;
}

struct gpu_metrics {
    uint8_t before_status[112];
    uint64_t indep_throttle_status; /* SMU_THROTTLER_*_BIT, up to MI200 */
    uint8_t between[304];
    /* For how long each limit held, MI300 and later. All are the largest number where a GPU has none. */
    uint64_t accumulation_counter, prochot, ppt, socket_thm, vr_thm, hbm_thm;
    uint8_t after[4072];
};
_Static_assert(sizeof(struct gpu_metrics) == 4544, "as in amdsmi 7.0");

amdsmi_status_t amdsmi_get_gpu_metrics_info(handle_t handle, struct gpu_metrics *metrics)
{
    GPU_OR_RETURN("metrics");
    memset(metrics, 0xFF, sizeof *metrics);
    metrics->indep_throttle_status = (uint64_t)value_of("throttle_status", gpu, -1);
    if (value_of("residencies", gpu, 1)) {
        metrics->accumulation_counter = (uint64_t)(seconds() * 1000);
        metrics->prochot = (uint64_t)value_of("prochot", gpu, 0);
        metrics->ppt = (uint64_t)value_of("ppt", gpu, 100);
        metrics->socket_thm = (uint64_t)value_of("socket_thm", gpu, 0);
        metrics->vr_thm = (uint64_t)value_of("vr_thm", gpu, 0);
        metrics->hbm_thm = (uint64_t)value_of("hbm_thm", gpu, 7);
    }
    return SUCCESS;
}

struct clock_info { uint32_t clk, min_clk, max_clk; uint8_t locked, deep_sleep; uint32_t reserved[4]; };

/* MHz; type 0 graphics, 4 memory. */
amdsmi_status_t amdsmi_get_clock_info(handle_t handle, uint32_t type, struct clock_info *info)
{
    GPU_OR_RETURN("clock");
    memset(info, 0, sizeof *info);
    info->clk = (uint32_t)(type == 4 ? value_of("memory_clock", gpu, 1300) : value_of("sm_clock", gpu, 2100));
    return SUCCESS;
}

struct asic_info {
    char market_name[256];
    uint32_t vendor_id;
    char vendor_name[256];
    uint32_t subvendor_id;
    uint64_t device_id;
    uint32_t rev_id;
    char asic_serial[256]; /* hexadecimal: what ROCR_VISIBLE_DEVICES calls GPU-<serial> */
    uint32_t oam_id, compute_units;
    uint64_t target_version;
    uint32_t subsystem_id, reserved[21];
};

amdsmi_status_t amdsmi_get_gpu_asic_info(handle_t handle, struct asic_info *info)
{
    GPU_OR_RETURN("asic");
    memset(info, 0, sizeof *info);
    snprintf(info->market_name, sizeof info->market_name, "AMD Instinct MI300X");
    snprintf(info->vendor_name, sizeof info->vendor_name, "Advanced Micro Devices");
    snprintf(info->asic_serial, sizeof info->asic_serial, "4b2c1a9f8d3e6f7%x", gpu);
    info->vendor_id = 0x1002;
    info->device_id = 0x74a1;
    return SUCCESS;
}

/* Counts since the driver was loaded. */
amdsmi_status_t amdsmi_get_gpu_total_ecc_count(handle_t handle, uint64_t counts[8])
{
    GPU_OR_RETURN("ecc");
    counts[0] = (uint64_t)value_of("ecc_corrected", gpu, 0);
    counts[1] = (uint64_t)value_of("ecc_uncorrected", gpu, 0);
    counts[2] = 0;
    return SUCCESS;
}

/* 0 none, 1 one, 2 several errors. */
amdsmi_status_t amdsmi_gpu_xgmi_error_status(handle_t handle, uint32_t *status)
{
    GPU_OR_RETURN("xgmi_status");
    *status = (uint32_t)value_of("xgmi_errors", gpu, 0);
    return SUCCESS;
}

struct pcie_static { uint16_t width; uint32_t speed, version, slot, max_version; uint64_t reserved[9]; };
struct pcie_metric {
    uint16_t width;
    uint32_t speed, bandwidth;
    uint64_t replays, recoveries, rollovers, naks_sent, naks_received;
    uint32_t other_end;
    uint64_t reserved[12];
};
struct pcie_info { struct pcie_static fixed; struct pcie_metric now; uint64_t reserved[32]; };

/* Speed in MT/s. */
amdsmi_status_t amdsmi_get_pcie_info(handle_t handle, struct pcie_info *info)
{
    GPU_OR_RETURN("pcie");
    memset(info, 0, sizeof *info);
    info->now.width = (uint16_t)value_of("pcie_width", gpu, 16);
    info->now.speed = (uint32_t)value_of("pcie_speed", gpu, 32000);
    info->now.replays = (uint64_t)value_of("pcie_replays", gpu, 0);
    return SUCCESS;
}

struct link { uint64_t bdf; uint32_t bit_rate, bandwidth, type; uint64_t read, write, reserved[2]; };
struct link_metrics { uint32_t count; struct link links[64]; uint64_t reserved[7]; };

/* Kilobytes that each xGMI link has moved. */
amdsmi_status_t amdsmi_get_link_metrics(handle_t handle, struct link_metrics *metrics)
{
    uint32_t i;
    GPU_OR_RETURN("links");
    memset(metrics, 0, sizeof *metrics);
    metrics->count = (uint32_t)value_of("xgmi_links", gpu, 7);
    for (i = 0; i < metrics->count; i++) {
        metrics->links[i].read = (uint64_t)value_of("xgmi_read", gpu, 0);
        metrics->links[i].write = (uint64_t)value_of("xgmi_write", gpu, 0);
    }
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_gpu_fan_speed(handle_t handle, uint32_t sensor, int64_t *speed)
{
    GPU_OR_RETURN("fan");
    *speed = value_of("fan_speed", gpu, 51);
    return sensor == 0 ? SUCCESS : NOT_SUPPORTED;
}

amdsmi_status_t amdsmi_get_gpu_fan_speed_max(handle_t handle, uint32_t sensor, uint64_t *speed)
{
    GPU_OR_RETURN("fan");
    *speed = 255;
    return sensor == 0 ? SUCCESS : NOT_SUPPORTED;
}

struct proc_info {
    char name[256];
    uint32_t pid;
    uint64_t memory;
    uint64_t engines[2]; uint32_t reserved[12];
    uint64_t gtt, cpu, vram; uint32_t reserved_memory[10];
    char container[256];
    uint32_t occupancy, reserved_end[11];
};

/* Knobs "user1" to "user8": a process's number and bytes. */
amdsmi_status_t amdsmi_get_gpu_process_list(handle_t handle, uint32_t *count, struct proc_info *all)
{
    uint32_t found = 0, i;
    char name[16];
    GPU_OR_RETURN("process_list");
    for (i = 1; i <= 8 && found < *count; i++) {
        const char *text;
        char *rest;
        snprintf(name, sizeof name, "user%u", i);
        if (!(text = text_of(name, gpu, NULL)))
            continue;
        memset(&all[found], 0, sizeof all[found]);
        all[found].pid = (uint32_t)strtoul(text, &rest, 10);
        all[found].vram = strtoull(rest, NULL, 10);
        found++;
    }
    *count = found;
    return SUCCESS;
}

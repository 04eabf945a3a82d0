/* Stands in for NVIDIA's driver library, libnvidia-ml.so.1, below the real pynvml.
 *
 * Signatures and structures follow nvml.h; each unit is the one that NVIDIA's reference gives for the function, at
 * https://docs.nvidia.com/deploy/nvml-api/ ("Device Queries", "Device Structs", "Multi Instance GPU Management").
 * With -DOLD_DRIVER the functions that drivers before 2024 lack are missing.
 *
 * A handle is a GPU's number plus 1; a MIG instance's is 1000 * (GPU + 1) + instance + 1.
 */
#include "knobs.h"

typedef int nvmlReturn_t;
typedef void *nvmlDevice_t;
enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };

static int initialized;
static double begun;
static double energy_mj[64], energy_at[64];

static int gpu_of(nvmlDevice_t device)
{
    intptr_t handle = (intptr_t)device;
    return (int)(handle > 999 ? handle / 1000 - 1 : handle - 1);
}

static int instance_of(nvmlDevice_t device)
{
    intptr_t handle = (intptr_t)device;
    return handle > 999 ? (int)(handle % 1000 - 1) : -1;
}

#define GPU_OR_RETURN(function)                                   \
    int gpu = gpu_of(device), error;                              \
    if (!initialized)                                             \
        return NOT_INITIALIZED;                                   \
    if ((error = trouble(function, gpu)))                         \
        return error

/* What only a whole GPU has. */
#define WHOLE_OR_RETURN                                           \
    if (instance_of(device) >= 0)                                 \
        return NOT_SUPPORTED

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    int error = trouble("init", 0);
    (void)flags;
    if (error)
        return error;
    initialized++;
    begun = begun ? begun : seconds();
    return SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void)
{
    if (!initialized)
        return NOT_INITIALIZED;
    initialized--;
    return SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) { (void)result; return "an error of the stand-in"; }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    *count = (unsigned int)value_of("count", 0, 1);
    return initialized ? SUCCESS : NOT_INITIALIZED;
}

/* 1000 * major + 10 * minor, of the newest CUDA that the driver has. */
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = (int)value_of("cuda", 0, 12040);
    return initialized ? trouble("cuda", 0) : NOT_INITIALIZED;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    if (index >= value_of("count", 0, 1))
        return INVALID;
    *device = (nvmlDevice_t)(intptr_t)(index + 1);
    return trouble("handle", (int)index);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    GPU_OR_RETURN("name");
    if (instance_of(device) >= 0)
        snprintf(name, length, "NVIDIA H100 80GB HBM3 MIG 1g.10gb");
    else
        snprintf(name, length, "%s", text_of("name", gpu, "NVIDIA H100 80GB HBM3"));
    return SUCCESS;
}

/* nvmlDeviceArchitecture_t: 9 is Hopper. */
nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture)
{
    GPU_OR_RETURN("architecture");
    *architecture = (unsigned int)value_of("architecture", gpu, 9);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *cores)
{
    GPU_OR_RETURN("cores");
    WHOLE_OR_RETURN;
    *cores = (unsigned int)value_of("cores", gpu, 16896);
    return SUCCESS;
}

struct pci_info {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, struct pci_info *info)
{
    GPU_OR_RETURN("pci");
    WHOLE_OR_RETURN;
    memset(info, 0, sizeof *info);
    info->bus = (unsigned int)value_of("bus", gpu, gpu + 1);
    snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:00.0", info->domain, info->bus);
    return SUCCESS;
}

/* "GPU-" or "MIG-" and five groups of hexadecimal digits. */
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    GPU_OR_RETURN("uuid");
    if (instance_of(device) >= 0)
        snprintf(uuid, length, "MIG-%08x-1111-2222-3333-%012x", instance_of(device) + 0xa0, gpu);
    else
        snprintf(uuid, length, "GPU-%08x-c8d9-e0f1-a2b3-c4d5e6f7a8b9", 0x1ab0 + gpu);
    return SUCCESS;
}

/* Percent of the last sample period: gpu, a kernel ran; memory, device memory was read or written. */
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, unsigned int rates[2])
{
    GPU_OR_RETURN("utilization");
    WHOLE_OR_RETURN;
    rates[0] = (unsigned int)value_of("utilization", gpu, 50);
    rates[1] = (unsigned int)value_of("bandwidth", gpu, 25);
    return SUCCESS;
}

struct nvmlMemory_t { unsigned long long total, free, used; };
struct nvmlMemory_v2_t { unsigned int version; unsigned long long total, reserved, free, used; };

/* Bytes. "used" of the first version includes what the driver reserves, of the second it doesn't. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct nvmlMemory_t *memory)
{
    unsigned long long reserved;
    GPU_OR_RETURN("memory");
    reserved = (unsigned long long)value_of("reserved", gpu, 500000000);
    memory->total = (unsigned long long)value_of("total", gpu, 80000000000);
    memory->used = (unsigned long long)value_of("used", gpu, 20000000000) + reserved;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

#ifndef OLD_DRIVER
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct nvmlMemory_v2_t *memory)
{
    struct nvmlMemory_t first;
    nvmlReturn_t error = nvmlDeviceGetMemoryInfo(device, &first);
    if (error)
        return error;
    if (memory->version != 0x02000028)
        return 25; /* NVML_ERROR_ARGUMENT_VERSION_MISMATCH */
    memory->reserved = (unsigned long long)value_of("reserved", gpu_of(device), 500000000);
    memory->total = first.total;
    memory->used = first.used - memory->reserved;
    memory->free = first.free;
    if (instance_of(device) >= 0) {
        memory->total = 10000000000;
        memory->used = (unsigned long long)value_of("instance_used", gpu_of(device), 1000000000);
    }
    return SUCCESS;
}
#endif

/* mW, of the board: the mean of the last second, or the moment (GA100 and older). */
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power)
{
    GPU_OR_RETURN("power");
    WHOLE_OR_RETURN;
    *power = (unsigned int)value_of("power", gpu, 300000);
    return SUCCESS;
}

/* mW. */
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *limit)
{
    GPU_OR_RETURN("limit");
    WHOLE_OR_RETURN;
    *limit = (unsigned int)value_of("limit", gpu, 700000);
    return SUCCESS;
}

/* mJ since the driver was loaded. Without a knob of its own it follows from the power. */
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy)
{
    double now = seconds();
    GPU_OR_RETURN("energy");
    WHOLE_OR_RETURN;
    energy_mj[gpu] += value_of("power", gpu, 300000) * (now - (energy_at[gpu] ? energy_at[gpu] : begun));
    energy_at[gpu] = now;
    *energy = (unsigned long long)value_of("energy", gpu, 5000000 + (long long)energy_mj[gpu]);
    return SUCCESS;
}

struct nvmlTemperature_t { unsigned int version, sensor; int temperature; };

/* Degrees Celsius. */
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor, unsigned int *temperature)
{
    GPU_OR_RETURN("temperature");
    WHOLE_OR_RETURN;
    (void)sensor;
    *temperature = (unsigned int)value_of("temperature", gpu, 60);
    return SUCCESS;
}

#ifndef OLD_DRIVER
nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, struct nvmlTemperature_t *temperature)
{
    GPU_OR_RETURN("temperature");
    WHOLE_OR_RETURN;
    temperature->temperature = (int)value_of("temperature", gpu, 60);
    return temperature->version == 0x100000C ? SUCCESS : 25;
}
#endif

/* MHz; type 1 the streaming multiprocessors, 2 memory. */
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *clock)
{
    GPU_OR_RETURN("clock");
    WHOLE_OR_RETURN;
    *clock = (unsigned int)(type == 2 ? value_of("memory_clock", gpu, 2619) : value_of("sm_clock", gpu, 1755));
    return SUCCESS;
}

/* Bits: nvmlClocksEventReason*. */
#ifndef OLD_DRIVER
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
#else
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons)
#endif
{
    GPU_OR_RETURN("reasons");
    WHOLE_OR_RETURN;
    *reasons = (unsigned long long)value_of("reasons", gpu, 1);
    return SUCCESS;
}

/* 1: in MIG mode. */
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    GPU_OR_RETURN("mig");
    if (text_of("mig", gpu, NULL) == NULL)
        return NOT_SUPPORTED;
    *current = *pending = value_of("mig", gpu, 0) > 0;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    GPU_OR_RETURN("mig");
    *count = 7;
    return SUCCESS;
}

/* Places without an instance are NOT_FOUND. */
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *instance)
{
    GPU_OR_RETURN("mig");
    if (index >= value_of("mig", gpu, 0))
        return NOT_FOUND;
    *instance = (nvmlDevice_t)(intptr_t)(1000 * (gpu + 1) + (int)index + 1);
    return SUCCESS;
}

#ifndef OLD_DRIVER
/* nvmlFieldValue_t. A field that no knob "field.<id>" sets isn't supported; values are of type 3, unsigned long long. */
struct nvmlFieldValue_t {
    unsigned int id, scope;
    long long timestamp, latency;
    unsigned int type;
    nvmlReturn_t result;
    union { double d; unsigned long long u; } value;
};

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, struct nvmlFieldValue_t *values)
{
    int i;
    char name[32];
    GPU_OR_RETURN("fields");
    for (i = 0; i < count; i++) {
        snprintf(name, sizeof name, "field%u", values[i].id);
        values[i].result = text_of(name, gpu, NULL) ? SUCCESS : NOT_SUPPORTED;
        values[i].type = 3;
        values[i].value.u = (unsigned long long)value_of(name, gpu, 0);
    }
    return SUCCESS;
}

/* GPM: two samples, and metrics of the time between them. A sample counts how often it was taken, and of what. */
struct gpm_sample { int gpu, instance, taken; };
struct gpm_support { unsigned int version, supported; };
struct gpm_metric { unsigned int id; nvmlReturn_t result; double value; const char *names[3]; };
struct gpm_get { unsigned int version, count; struct gpm_sample *first, *second; struct gpm_metric metrics[1]; };
static int gpm_samples_taken, gpm_samples;

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, struct gpm_support *support)
{
    GPU_OR_RETURN("gpm");
    support->supported = (unsigned int)value_of("gpm", gpu, 0);
    return SUCCESS;
}

nvmlReturn_t nvmlGpmSampleAlloc(struct gpm_sample **sample)
{
    gpm_samples++;
    *sample = calloc(1, sizeof **sample);
    return *sample ? SUCCESS : TOO_SMALL;
}

nvmlReturn_t nvmlGpmSampleFree(struct gpm_sample *sample) { gpm_samples--; free(sample); return SUCCESS; }

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, struct gpm_sample *sample)
{
    GPU_OR_RETURN("gpm_sample");
    *sample = (struct gpm_sample){gpu, -1, ++gpm_samples_taken};
    return SUCCESS;
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int instance, struct gpm_sample *sample)
{
    GPU_OR_RETURN("gpm");
    *sample = (struct gpm_sample){gpu, (int)instance, ++gpm_samples_taken};
    return SUCCESS;
}

/* In NVML's units: percent, MiB/s. Knob "gpm<id>", of an instance "gpm<id>i<instance>", in thousandths. */
nvmlReturn_t nvmlGpmMetricsGet(struct gpm_get *asked)
{
    unsigned int i;
    char name[48];
    if (asked->version != 1 || asked->first->taken >= asked->second->taken
        || asked->first->gpu != asked->second->gpu || asked->first->instance != asked->second->instance)
        return INVALID;
    for (i = 0; i < asked->count; i++) {
        struct gpm_metric *metric = &asked->metrics[i];
        if (asked->first->instance >= 0)
            snprintf(name, sizeof name, "gpm%ui%d", metric->id, asked->first->instance);
        else
            snprintf(name, sizeof name, "gpm%u", metric->id);
        metric->result = text_of(name, asked->first->gpu, NULL) ? SUCCESS : NOT_SUPPORTED;
        metric->value = value_of(name, asked->first->gpu, 0) / 1000.0;
    }
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    GPU_OR_RETURN("mig");
    *id = (unsigned int)instance_of(device) + 7;
    return instance_of(device) < 0 ? NOT_SUPPORTED : SUCCESS;
}

/* Percent; the second number is the sampling period in microseconds. */
nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *busy, unsigned int *period)
{
    GPU_OR_RETURN("encoder");
    *busy = (unsigned int)value_of("encoder", gpu, 0);
    *period = 100000;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *busy, unsigned int *period)
{
    GPU_OR_RETURN("decoder");
    *busy = (unsigned int)value_of("decoder", gpu, 0);
    *period = 100000;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *speed)
{
    GPU_OR_RETURN("fan");
    *speed = (unsigned int)value_of("fan", gpu, 0);
    return text_of("fan", gpu, NULL) ? SUCCESS : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
    GPU_OR_RETURN("pcie");
    *generation = (unsigned int)value_of("pcie_gen", gpu, 5);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *width)
{
    GPU_OR_RETURN("pcie");
    *width = (unsigned int)value_of("pcie_width", gpu, 16);
    return SUCCESS;
}

/* Knobs "user1" to "user8": a process's number and bytes, "unknown" for what NVML calls NVML_VALUE_NOT_AVAILABLE. */
struct process_info { unsigned int pid; unsigned long long used; unsigned int instance, compute_instance; };

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, struct process_info *all)
{
    unsigned int found = 0, i;
    char name[16];
    GPU_OR_RETURN("processes");
    for (i = 1; i <= 8; i++) {
        const char *text;
        char *rest;
        snprintf(name, sizeof name, "user%u", i);
        if (!(text = text_of(name, gpu, NULL)))
            continue;
        if (found < *count && all) {
            all[found] = (struct process_info){(unsigned int)strtoul(text, &rest, 10), 0, -1, -1};
            all[found].used = strstr(rest, "unknown") ? ~0ULL : strtoull(rest, NULL, 10);
        }
        found++;
    }
    i = *count;
    *count = found;
    return found > i ? TOO_SMALL : SUCCESS;
}

/* Each change of the knob "xid" to another number is one event. */
struct event_data { nvmlDevice_t device; unsigned long long type, data; unsigned int instance, compute_instance; };
struct event_set { nvmlDevice_t device; long long seen; };

nvmlReturn_t nvmlEventSetCreate(struct event_set **set)
{
    *set = calloc(1, sizeof **set);
    return *set ? SUCCESS : TOO_SMALL;
}

nvmlReturn_t nvmlEventSetFree(struct event_set *set) { free(set); return SUCCESS; }

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, struct event_set *set)
{
    GPU_OR_RETURN("events");
    set->device = device;
    set->seen = value_of("xid", gpu, 0);
    return types == 8 ? SUCCESS : NOT_SUPPORTED; /* nvmlEventTypeXidCriticalError */
}

nvmlReturn_t nvmlEventSetWait_v2(struct event_set *set, struct event_data *data, unsigned int timeout_ms)
{
    int gpu = gpu_of(set->device), error = trouble("event_wait", gpu);
    long long now = value_of("xid", gpu, 0);
    (void)timeout_ms;
    if (error)
        return error;
    if (!now || now == set->seen)
        return 10; /* NVML_ERROR_TIMEOUT */
    set->seen = now;
    *data = (struct event_data){set->device, 8, (unsigned long long)now, -1, -1};
    return SUCCESS;
}
#endif

/* What the stand-ins answer is set by a text file, named by STANDIN_KNOBS and read again whenever it changes:
 *
 *   count 2          one value for all GPUs
 *   power.1 250000   another one for GPU 1
 *   error.power 3    what a function returns instead of success; error.all for every function of a GPU
 *   hang.power 1     the function never returns
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST_KNOBS 512

static struct { char name[64]; char text[128]; } knobs[MOST_KNOBS];
static int knob_count;
static struct timespec knobs_read;
static off_t knobs_size = -1;
static ino_t knobs_file;

static void read_knobs(void)
{
    const char *path = getenv("STANDIN_KNOBS");
    struct stat now;
    char line[256];
    FILE *file;
    if (!path || stat(path, &now))
        return;
    if (now.st_mtim.tv_sec == knobs_read.tv_sec && now.st_mtim.tv_nsec == knobs_read.tv_nsec
        && now.st_size == knobs_size && now.st_ino == knobs_file)
        return;
    if (!(file = fopen(path, "r")))
        return;
    knob_count = 0;
    while (knob_count < MOST_KNOBS && fgets(line, sizeof line, file))
        if (sscanf(line, "%63s %127[^\n]", knobs[knob_count].name, knobs[knob_count].text) == 2)
            knob_count++;
    fclose(file);
    knobs_read = now.st_mtim;
    knobs_size = now.st_size;
    knobs_file = now.st_ino;
}

static const char *text_of(const char *name, int gpu, const char *otherwise)
{
    char own[80];
    int i;
    read_knobs();
    snprintf(own, sizeof own, "%s.%d", name, gpu);
    for (i = 0; i < knob_count; i++)
        if (!strcmp(knobs[i].name, own))
            return knobs[i].text;
    for (i = 0; i < knob_count; i++)
        if (!strcmp(knobs[i].name, name))
            return knobs[i].text;
    return otherwise;
}

static long long value_of(const char *name, int gpu, long long otherwise)
{
    const char *text = text_of(name, gpu, NULL);
    return text ? atoll(text) : otherwise;
}

/* The error to return from a function of a GPU, 0 for none. May never return. */
static int trouble(const char *function, int gpu)
{
    char name[64];
    int all = (int)value_of("error.all", gpu, 0);
    snprintf(name, sizeof name, "hang.%s", function);
    while (value_of(name, gpu, 0))
        usleep(100000);
    snprintf(name, sizeof name, "error.%s", function);
    return all ? all : (int)value_of(name, gpu, 0);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

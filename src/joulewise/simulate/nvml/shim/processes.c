/* Who uses a GPU. Every process that is simulated computes; none draws. */
#include "nvml.h"

#define WHOLE_GPU 0xffffffffu /* no MIG instance */

typedef struct {
    unsigned pid;
    ull usedGpuMemory;
} nvmlProcessInfo_v1_t;

typedef struct {
    unsigned pid;
    ull usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
    unsigned pid;
    ull usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
    ull usedGpuCcProtectedMemory;
} nvmlProcessDetail_v1_t;

typedef struct {
    unsigned version, mode, numProcArrayEntries;
    nvmlProcessDetail_v1_t *procArray;
} nvmlProcessDetailList_v1_t;

typedef struct {
    unsigned pid;
    ull timeStamp;
    unsigned smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

typedef struct {
    ull timeStamp;
    unsigned pid, smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil;
} nvmlProcessUtilizationInfo_v1_t;

typedef struct {
    unsigned version, processSamplesCount;
    ull lastSeenTimeStamp;
    nvmlProcessUtilizationInfo_v1_t *procUtilArray;
} nvmlProcessesUtilizationInfo_v1_t;

/* Sets *count to how many processes there are, and makes a record of each (the expression may use
 * `process`); returns where there is no room for them. */
#define LIST(count, records, ...)                                                           \
    do {                                                                                    \
        struct jw_process table[JW_PROCESSES];                                              \
        const unsigned room = *(count);                                                     \
        TRY(process_table(gpu, table, count));                                              \
        if (*(count) && (*(count) > room || !(records))) return NVML_ERROR_INSUFFICIENT_SIZE; \
        for (unsigned i = 0; i < *(count); i++) {                                           \
            const struct jw_process *process = &table[i];                                   \
            (records)[i] = (__VA_ARGS__);                                                   \
        }                                                                                   \
    } while (0)

#define COMPUTE(call, type, ...)                                                            \
    API nvmlReturn_t call(nvmlDevice_t device, unsigned *count, type *infos) {              \
        ENTER(JW_COST_SCAN);                                                                \
        REQUIRE(count);                                                                     \
        LIST(count, infos, (type){process->pid, process->memory_b, __VA_ARGS__});           \
        return NVML_SUCCESS;                                                                \
    }
#define NONE(call)                                                                          \
    API nvmlReturn_t call(nvmlDevice_t device, unsigned *count, void *infos) {              \
        (void)infos;                                                                        \
        ENTER(JW_COST_SCAN);                                                                \
        REQUIRE(count);                                                                     \
        *count = 0;                                                                         \
        return NVML_SUCCESS;                                                                \
    }

COMPUTE(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, )
COMPUTE(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t, WHOLE_GPU, WHOLE_GPU)
COMPUTE(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, WHOLE_GPU, WHOLE_GPU)
NONE(nvmlDeviceGetGraphicsRunningProcesses)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v2)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v3)
NONE(nvmlDeviceGetMPSComputeRunningProcesses)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v3)

API nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                       nvmlProcessDetailList_v1_t *all) {
    enum { MODE_COMPUTE = 0, MODE_ALL = 3 };
    ENTER(JW_COST_SCAN);
    REQUIRE(all);
    if (all->version != VERSION(nvmlProcessDetailList_v1_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    REQUIRE(all->mode <= MODE_ALL);
    if (all->mode == MODE_COMPUTE || all->mode == MODE_ALL)
        LIST(&all->numProcArrayEntries, all->procArray,
             (nvmlProcessDetail_v1_t){process->pid, process->memory_b, WHOLE_GPU, WHOLE_GPU, 0});
    else
        all->numProcArrayEntries = 0;
    return NVML_SUCCESS;
}

/* The pieces know how busy the GPU was, not with whom: its processes share that evenly. */
static nvmlReturn_t load(struct jw_gpu *gpu, ull last_seen, ull *at_us, double *busy,
                         double *memory) {
    const struct grid grid = utilisation_grid(gpu);
    const int64_t end = tick_at_ns(&grid, last_tick(&grid, sensed_ns(gpu)));
    *at_us = (ull)wall_us(end);
    if (*at_us <= last_seen) return NVML_ERROR_NOT_FOUND;
    return shares(gpu, end - grid.period_ns, end, busy, memory);
}

#define LOADS(type, last_seen, count, records)                          \
    ull at_us;                                                          \
    double busy, memory;                                                \
    TRY(load(gpu, last_seen, &at_us, &busy, &memory));                  \
    LIST(count, records,                                                \
         (type){.pid = process->pid,                                    \
                .timeStamp = at_us,                                     \
                .smUtil = percent(busy / *(count)),                     \
                .memUtil = percent(memory / *(count))});                \
    return *(count) ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND

API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                 nvmlProcessUtilizationSample_t *samples,
                                                 unsigned *count, ull last_seen) {
    ENTER(JW_COST_SCAN);
    REQUIRE(count);
    LOADS(nvmlProcessUtilizationSample_t, last_seen, count, samples);
}

API nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                       nvmlProcessesUtilizationInfo_v1_t *all) {
    ENTER(JW_COST_SCAN);
    REQUIRE(all);
    if (all->version != VERSION(nvmlProcessesUtilizationInfo_v1_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    LOADS(nvmlProcessUtilizationInfo_v1_t, all->lastSeenTimeStamp, &all->processSamplesCount,
          all->procUtilArray);
}

/* Clocks: what they are, what they may be, and what clients ask of them. */
#include "nvml.h"

#include <math.h>

enum { GRAPHICS, SM, MEMORY, VIDEO, CLOCK_TYPES };
enum { CURRENT, APPLICATION_TARGET, APPLICATION_DEFAULT, CUSTOMER_BOOST };

#define LIMIT_TDP 0xffffff01u
#define LIMIT_UNLIMITED 0xffffff02u
#define THROTTLE_REASONS 0x1ffu

static uint64_t pack(unsigned first, unsigned second) { return (uint64_t)first << 32 | second; }

static unsigned highest(const struct jw_gpu *gpu, unsigned type) {
    return type == MEMORY ? gpu->memory_clock_mhz[0] : (unsigned)gpu->sm_max_mhz;
}

/* Drivers cut what lies between two whole MHz. */
static unsigned sm_step(const struct jw_gpu *gpu, unsigned below_highest) {
    return (unsigned)(gpu->sm_max_mhz - below_highest * gpu->sm_step_mhz);
}

static unsigned sm_steps(const struct jw_gpu *gpu) {
    return (unsigned)floor((gpu->sm_max_mhz - gpu->sm_min_mhz) / gpu->sm_step_mhz + 1e-6) + 1;
}

static bool is_memory_clock(const struct jw_gpu *gpu, unsigned mhz) {
    for (unsigned i = 0; i < gpu->memory_clocks; i++)
        if (gpu->memory_clock_mhz[i] == mhz) return true;
    return false;
}

static bool is_sm_clock(const struct jw_gpu *gpu, unsigned mhz) {
    for (unsigned i = 0; i < sm_steps(gpu); i++)
        if (sm_step(gpu, i) == mhz) return true;
    return false;
}

/* ---- what they are ---- */

static nvmlReturn_t clock_now(struct jw_gpu *gpu, unsigned type, unsigned *mhz) {
    struct jw_piece piece;
    TRY(piece_at(gpu, sensed_ns(gpu), &piece));
    *mhz = (unsigned)(type == MEMORY ? piece.memory_mhz : piece.sm_mhz);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz) {
    ENTER(JW_COST_SCAN);
    REQUIRE(mhz && type < CLOCK_TYPES);
    return clock_now(gpu, type, mhz);
}

#define HIGHEST(call)                                                         \
    API nvmlReturn_t call(nvmlDevice_t device, unsigned type, unsigned *mhz) { \
        ENTER(JW_COST_READ);                                                  \
        REQUIRE(mhz && type < CLOCK_TYPES);                                   \
        *mhz = highest(gpu, type);                                            \
        return NVML_SUCCESS;                                                  \
    }

HIGHEST(nvmlDeviceGetMaxClockInfo)
HIGHEST(nvmlDeviceGetMaxCustomerBoostClock)

/* Application clocks are those of boards for computing and workstations. */
static nvmlReturn_t application_clock(const struct jw_gpu *gpu, unsigned type, bool standard,
                                      unsigned *mhz) {
    const uint64_t set = standard ? 0 : gpu->application_clocks;
    if (gpu->brand == BRAND_GEFORCE) return NVML_ERROR_NOT_SUPPORTED;
    if (set)
        *mhz = (unsigned)(type == MEMORY ? set >> 32 : set & 0xffffffff);
    else
        *mhz = highest(gpu, type);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, unsigned type, unsigned *mhz) {
    ENTER(JW_COST_READ);
    REQUIRE(mhz && type < CLOCK_TYPES);
    return application_clock(gpu, type, false, mhz);
}

API nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, unsigned type,
                                                       unsigned *mhz) {
    ENTER(JW_COST_READ);
    REQUIRE(mhz && type < CLOCK_TYPES);
    return application_clock(gpu, type, true, mhz);
}

API nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned type, unsigned id, unsigned *mhz) {
    ENTER(JW_COST_SCAN);
    REQUIRE(mhz && type < CLOCK_TYPES && id <= CUSTOMER_BOOST);
    if (id == CURRENT) return clock_now(gpu, type, mhz);
    if (id != CUSTOMER_BOOST) return application_clock(gpu, type, id == APPLICATION_DEFAULT, mhz);
    *mhz = highest(gpu, type);
    return NVML_SUCCESS;
}

#define OF_PIECE(call, type, field)                                                  \
    API nvmlReturn_t call(nvmlDevice_t device, type *answer) {                       \
        struct jw_piece piece;                                                       \
        ENTER(JW_COST_READ);                                                         \
        REQUIRE(answer);                                                             \
        TRY(piece_at(gpu, sensed_ns(gpu), &piece));                                  \
        *answer = piece.field;                                                       \
        return NVML_SUCCESS;                                                         \
    }

OF_PIECE(nvmlDeviceGetCurrentClocksEventReasons, ull, throttle)
OF_PIECE(nvmlDeviceGetCurrentClocksThrottleReasons, ull, throttle)
OF_PIECE(nvmlDeviceGetPerformanceState, unsigned, pstate)
OF_PIECE(nvmlDeviceGetPowerState, unsigned, pstate)

#define SUPPORTED_REASONS(call)                                \
    API nvmlReturn_t call(nvmlDevice_t device, ull *reasons) { \
        ENTER(JW_COST_IDENTITY);                               \
        REQUIRE(reasons);                                      \
        *reasons = THROTTLE_REASONS;                           \
        return NVML_SUCCESS;                                   \
    }

SUPPORTED_REASONS(nvmlDeviceGetSupportedClocksEventReasons)
SUPPORTED_REASONS(nvmlDeviceGetSupportedClocksThrottleReasons)

/* ---- what they may be ---- */

API nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned *count,
                                                    unsigned *mhz) {
    ENTER(JW_COST_READ);
    REQUIRE(count);
    const unsigned room = *count;
    *count = gpu->memory_clocks;
    if (room < *count || !mhz) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) mhz[i] = gpu->memory_clock_mhz[i];
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned memory_mhz,
                                                      unsigned *count, unsigned *mhz) {
    ENTER(JW_COST_READ);
    REQUIRE(count);
    if (!is_memory_clock(gpu, memory_mhz)) return NVML_ERROR_NOT_FOUND;
    const unsigned room = *count;
    *count = sm_steps(gpu);
    if (room < *count || !mhz) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) mhz[i] = sm_step(gpu, i);
    return NVML_SUCCESS;
}

/* ---- what clients set ---- */

static nvmlReturn_t set_control(struct jw_gpu *gpu, _Atomic uint64_t *control, uint64_t value) {
    *control = value;
    changed(gpu);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceSetApplicationsClocks(nvmlDevice_t device, unsigned memory_mhz,
                                                 unsigned sm_mhz) {
    ENTER_SETTER;
    if (gpu->brand == BRAND_GEFORCE) return NVML_ERROR_NOT_SUPPORTED;
    REQUIRE(is_memory_clock(gpu, memory_mhz) && is_sm_clock(gpu, sm_mhz));
    return set_control(gpu, &gpu->application_clocks, pack(memory_mhz, sm_mhz));
}

API nvmlReturn_t nvmlDeviceResetApplicationsClocks(nvmlDevice_t device) {
    ENTER_SETTER;
    if (gpu->brand == BRAND_GEFORCE) return NVML_ERROR_NOT_SUPPORTED;
    return set_control(gpu, &gpu->application_clocks, 0);
}

/* A driver takes any number and goes to the next step of the clock. */
static unsigned nearest_sm(const struct jw_gpu *gpu, unsigned mhz) {
    if (mhz >= gpu->sm_max_mhz) return sm_step(gpu, 0);
    const double steps = rint((gpu->sm_max_mhz - mhz) / gpu->sm_step_mhz);
    return sm_step(gpu, (unsigned)fmin(steps, sm_steps(gpu) - 1));
}

API nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned low, unsigned high) {
    ENTER_SETTER;
    if (gpu->architecture < VOLTA) return NVML_ERROR_NOT_SUPPORTED;
    const bool low_named = low >= LIMIT_TDP, high_named = high >= LIMIT_TDP;
    REQUIRE(low_named == high_named && high > 0);
    if (low_named) {
        if (low == LIMIT_UNLIMITED) low = 0;
        if (low == 0 && high == LIMIT_UNLIMITED) return set_control(gpu, &gpu->sm_lock, 0);
    }
    REQUIRE(low <= high);
    return set_control(gpu, &gpu->sm_lock, pack(nearest_sm(gpu, low), nearest_sm(gpu, high)));
}

API nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device) {
    ENTER_SETTER;
    if (gpu->architecture < VOLTA) return NVML_ERROR_NOT_SUPPORTED;
    return set_control(gpu, &gpu->sm_lock, 0);
}

static unsigned nearest_memory(const struct jw_gpu *gpu, unsigned mhz) {
    unsigned best = gpu->memory_clock_mhz[0];
    for (unsigned i = 1; i < gpu->memory_clocks; i++) {
        const unsigned candidate = gpu->memory_clock_mhz[i];
        if (fabs((double)candidate - mhz) < fabs((double)best - mhz)) best = candidate;
    }
    return best;
}

API nvmlReturn_t nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t device, unsigned low, unsigned high) {
    ENTER_SETTER;
    if (gpu->architecture < AMPERE) return NVML_ERROR_NOT_SUPPORTED;
    REQUIRE(low <= high && high > 0);
    return set_control(gpu, &gpu->memory_lock, pack(nearest_memory(gpu, low), nearest_memory(gpu, high)));
}

API nvmlReturn_t nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t device) {
    ENTER_SETTER;
    if (gpu->architecture < AMPERE) return NVML_ERROR_NOT_SUPPORTED;
    return set_control(gpu, &gpu->memory_lock, 0);
}

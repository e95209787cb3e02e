/* Power, energy, limits, and the buffers and fields that repeat them. */
#include "nvml.h"

#include <stdlib.h>

typedef union {
    double dVal;
    int siVal;
    unsigned uiVal;
    unsigned long ulVal;
    ull ullVal;
    long long sllVal;
} nvmlValue_t;

typedef struct {
    ull timeStamp;
    nvmlValue_t sampleValue;
} nvmlSample_t;

typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned valueType;
    nvmlReturn_t nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;

typedef struct {
    unsigned version;
    unsigned char powerScope;
    unsigned powerValueMw;
} nvmlPowerValue_v2_t;

enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3 };

/* ---- power and energy ---- */

/* The memory's power is reported as an average alone, as nvidia-smi -q shows it on real boards
 * (GPU Memory Power Readings). */
static bool has_scope(const struct jw_gpu *gpu, unsigned scope, int channel) {
    return scope == SCOPE_GPU || (scope == SCOPE_MODULE && gpu->is_module) ||
           (scope == SCOPE_MEMORY && gpu->memory_full_w > 0 && channel == AVERAGE);
}

static nvmlReturn_t power_now(struct jw_gpu *gpu, unsigned scope, int channel, unsigned *mw) {
    if (!has_scope(gpu, scope, channel)) return NVML_ERROR_NOT_SUPPORTED;
    if (channel == AVERAGE && !gpu->average_window_ns) return NVML_ERROR_NOT_SUPPORTED;
    const struct grid grid = power_grid(gpu);
    return power_mw(gpu, (int)scope, channel, last_tick(&grid, sensed_ns(gpu)), mw);
}

API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *power) {
    ENTER(JW_COST_READ);
    REQUIRE(power);
    const unsigned scope = gpu->plain_is_module ? SCOPE_MODULE : SCOPE_GPU;
    return power_now(gpu, scope, gpu->plain_is_average ? AVERAGE : INSTANT, power);
}

static nvmlReturn_t energy_now(struct jw_gpu *gpu, ull *mj) {
    if (gpu->counter_step_j <= 0 || fault_at(gpu, JW_FAULT_COUNTER_UNSUPPORTED, now_ns()))
        return NVML_ERROR_NOT_SUPPORTED;
    return counter_mj(gpu, mj);
}

API nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, ull *energy) {
    ENTER(JW_COST_READ);
    REQUIRE(energy);
    return energy_now(gpu, energy);
}

/* ---- limits ---- */

#define LIMIT(call, value)                                       \
    API nvmlReturn_t call(nvmlDevice_t device, unsigned *limit) { \
        ENTER(JW_COST_READ);                                     \
        REQUIRE(limit);                                          \
        *limit = (value);                                        \
        return NVML_SUCCESS;                                     \
    }

LIMIT(nvmlDeviceGetPowerManagementLimit, gpu->limit_mw)
LIMIT(nvmlDeviceGetEnforcedPowerLimit, gpu->limit_mw)
LIMIT(nvmlDeviceGetPowerManagementDefaultLimit, gpu->limit_default_mw)
LIMIT(nvmlDeviceGetPowerManagementMode, 1)

API nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device,
                                                              unsigned *minimum, unsigned *maximum) {
    ENTER(JW_COST_READ);
    REQUIRE(minimum && maximum);
    *minimum = gpu->limit_minimum_mw;
    *maximum = gpu->limit_maximum_mw;
    return NVML_SUCCESS;
}

static nvmlReturn_t set_limit(struct jw_gpu *gpu, unsigned mw) {
    const struct jw_fault *refused = fault_at(gpu, JW_FAULT_LIMIT_REFUSED, now_ns());
    if (refused) return (nvmlReturn_t)refused->code;
    if (gpu->limit_minimum_mw == gpu->limit_maximum_mw) return NVML_ERROR_NOT_SUPPORTED;
    REQUIRE(gpu->limit_minimum_mw <= mw && mw <= gpu->limit_maximum_mw);
    gpu->limit_mw = mw;
    changed(gpu);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned limit) {
    ENTER_SETTER;
    return set_limit(gpu, limit);
}

API nvmlReturn_t nvmlDeviceSetPowerManagementLimit_v2(nvmlDevice_t device,
                                                      nvmlPowerValue_v2_t *value) {
    ENTER_SETTER;
    REQUIRE(value);
    if (value->version != VERSION(nvmlPowerValue_v2_t, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (value->powerScope != 0) return NVML_ERROR_NOT_SUPPORTED;
    return set_limit(gpu, value->powerValueMw);
}

/* ---- fields ---- */

static nvmlReturn_t temperature_now(struct jw_gpu *gpu, unsigned *value) {
    struct jw_piece piece;
    TRY(piece_at(gpu, sensed_ns(gpu), &piece));
    *value = (unsigned)piece.temperature_c;
    return NVML_SUCCESS;
}

enum { LOWEST_LIMIT_FIELD = 187, HIGHEST_LIMIT_FIELD = 192 };

/* A limit of another scope than the GPU's: the module has one, which cannot be set here. */
static nvmlReturn_t scoped_limit(const struct jw_gpu *gpu, unsigned scope, unsigned *value) {
    if (scope != SCOPE_MODULE || !gpu->is_module) return NVML_ERROR_NOT_SUPPORTED;
    *value = gpu->module_limit_mw;
    return NVML_SUCCESS;
}

static nvmlReturn_t field(struct jw_gpu *gpu, nvmlFieldValue_t *field) {
    unsigned *value = &field->value.uiVal;
    field->value.ullVal = 0;
    field->valueType = UNSIGNED_INT;
    const bool is_limit = LOWEST_LIMIT_FIELD <= field->fieldId && field->fieldId <= HIGHEST_LIMIT_FIELD;
    if (is_limit && field->scopeId != SCOPE_GPU) return scoped_limit(gpu, field->scopeId, value);
    switch (field->fieldId) {
        case 1: /* ECC mode, current and pending */
        case 2:
            *value = gpu->ecc;
            return gpu->ecc ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
        case 3: /* ECC errors, single and double bit, volatile and aggregate */
        case 4:
        case 5:
        case 6:
            field->valueType = UNSIGNED_LONG_LONG;
            return gpu->ecc ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
        case 82: /* memory temperature: only stacked memory has a sensor */
            return gpu->ecc ? temperature_now(gpu, value) : NVML_ERROR_NOT_SUPPORTED;
        case 83:
            field->valueType = UNSIGNED_LONG_LONG;
            return energy_now(gpu, &field->value.ullVal);
        case 94: /* PCIe replays, and their roll-overs */
        case 95:
            return NVML_SUCCESS;
        case 185:
        case 186:
            return power_now(gpu, field->scopeId, field->fieldId == 185 ? AVERAGE : INSTANT, value);
        case 187:
            *value = gpu->limit_minimum_mw;
            return NVML_SUCCESS;
        case 188:
            *value = gpu->limit_maximum_mw;
            return NVML_SUCCESS;
        case 189:
            *value = gpu->limit_default_mw;
            return NVML_SUCCESS;
        case 190: /* enforced, and as requested */
        case 192:
            *value = gpu->limit_mw;
            return NVML_SUCCESS;
        default:
            return NVML_ERROR_NOT_SUPPORTED;
    }
}

API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    ENTER(JW_COST_READ);
    REQUIRE(values && count > 0);
    for (int i = 0; i < count; i++) {
        const int64_t began = now_ns();
        values[i].nvmlReturn = field(gpu, &values[i]);
        values[i].timestamp = wall_us(began);
        values[i].latencyUsec = (now_ns() - began) / 1000;
    }
    return NVML_SUCCESS;
}

/* ---- the sample buffer ---- */

enum { POWER, GPU_BUSY, MEMORY_BUSY, ENCODER, DECODER, SM_CLOCK, MEMORY_CLOCK, SAMPLE_TYPES };

static bool is_share(unsigned type) { return GPU_BUSY <= type && type <= DECODER; }

static nvmlReturn_t sample(struct jw_gpu *gpu, unsigned type, int64_t tick, int64_t t_ns,
                           unsigned *value) {
    struct jw_piece piece;
    double busy, memory;
    switch (type) {
        case POWER:
            return power_mw(gpu, SCOPE_GPU, INSTANT, tick, value);
        case GPU_BUSY:
        case MEMORY_BUSY:
            TRY(shares(gpu, t_ns - gpu->utilisation_period_ns, t_ns, &busy, &memory));
            *value = percent(type == GPU_BUSY ? busy : memory);
            return NVML_SUCCESS;
        case SM_CLOCK:
        case MEMORY_CLOCK:
            TRY(piece_at(gpu, t_ns, &piece));
            *value = (unsigned)(type == SM_CLOCK ? piece.sm_mhz : piece.memory_mhz);
            return NVML_SUCCESS;
        default: /* nothing that is simulated encodes or decodes */
            *value = 0;
            return NVML_SUCCESS;
    }
}

API nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned type, ull last_seen,
                                      unsigned *value_type, unsigned *count, nvmlSample_t *samples) {
    ENTER(JW_COST_SCAN);
    REQUIRE(value_type && count && !(samples && *count == 0));
    if (type >= SAMPLE_TYPES) return NVML_ERROR_NOT_SUPPORTED;
    *value_type = UNSIGNED_INT;
    const struct grid grid = is_share(type) ? utilisation_grid(gpu) : power_grid(gpu);
    const int64_t newest = last_tick(&grid, sensed_ns(gpu));
    int64_t tick = newest - gpu->buffer_samples + 1;
    while (tick <= newest && (ull)wall_us(tick_at_ns(&grid, tick)) <= last_seen) tick++;
    if (tick > newest) return NVML_ERROR_NOT_FOUND;
    if (!samples) {
        *count = gpu->buffer_samples;
        return NVML_SUCCESS;
    }
    unsigned stored = 0;
    for (; tick <= newest && stored < *count; tick++) {
        nvmlSample_t *next = &samples[stored];
        const int64_t t_ns = tick_at_ns(&grid, tick);
        next->timeStamp = (ull)wall_us(t_ns);
        next->sampleValue.ullVal = 0;
        const nvmlReturn_t result = sample(gpu, type, tick, t_ns, &next->sampleValue.uiVal);
        if (result == NVML_SUCCESS)
            stored++;
        else if (result != NVML_ERROR_NO_DATA) /* what the ring has forgotten is left out */
            return result;
    }
    *count = stored;
    return stored ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

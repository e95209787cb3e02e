/* Every other function of NVML exists, and answers as a driver does where a board lacks it. */
#include "nvml.h"

#define NVML_UNSUPPORTED(name) \
    API nvmlReturn_t name(void) { return enter_unsupported(); }

static nvmlReturn_t enter_unsupported(void) {
    const nvmlReturn_t entered = enter_system("", JW_COST_IDENTITY);
    return entered == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : entered;
}

#include "unsupported.h"

/* doca_config.h: configuration of the other headers.
 *
 * Written for this project from the names, types and numbers of the public DOCA 3.0 reference
 * (https://docs.nvidia.com/doca/). */
#ifndef DMA_DOCA_CONFIG_H
#define DMA_DOCA_CONFIG_H

#include <doca_build_config.h>

#define DOCA_COMPAT_HELPERS

#endif

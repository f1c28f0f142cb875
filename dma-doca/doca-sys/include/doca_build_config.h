/* doca_build_config.h: the side of the card that a program is built for.
 *
 * Written for this project from the names, types and numbers of the public DOCA 3.0 reference
 * (https://docs.nvidia.com/doca/). */
#ifndef DMA_DOCA_BUILD_CONFIG_H
#define DMA_DOCA_BUILD_CONFIG_H

/* The vendor's headers define DOCA_ARCH_DPU on a card and DOCA_ARCH_HOST on a host. The stand-in has both
 * sides on one machine. -DDOCA_ARCH_DPU or -DDOCA_ARCH_HOST selects the side of a program; the default is both. */
#if !defined(DOCA_ARCH_DPU) && !defined(DOCA_ARCH_HOST)
#define DOCA_ARCH_DPU
#define DOCA_ARCH_HOST
#endif

/* On a BlueField-2, the vendor's headers define this as true. */
#ifndef DOCA_ARCH_DPU_BF2
#define DOCA_ARCH_DPU_BF2 false
#endif

#if defined(__x86_64__) && !defined(DOCA_ARCH_X86)
#define DOCA_ARCH_X86
#endif

#endif

/* doca_build_config.h: which side of the card a program is built for.
 *
 * Written for this project from the names, types and numbers of the public DOCA 3.0 reference
 * (https://docs.nvidia.com/doca/). */
#ifndef DMA_DOCA_BUILD_CONFIG_H
#define DMA_DOCA_BUILD_CONFIG_H

/* The vendor's headers say DOCA_ARCH_DPU on a card and DOCA_ARCH_HOST on a host. The stand-in plays both on one machine:
 * a program may say by -DDOCA_ARCH_DPU or -DDOCA_ARCH_HOST which it is, and passes for both if it says nothing. */
#if !defined(DOCA_ARCH_DPU) && !defined(DOCA_ARCH_HOST)
#define DOCA_ARCH_DPU
#define DOCA_ARCH_HOST
#endif

#if defined(__x86_64__) && !defined(DOCA_ARCH_X86)
#define DOCA_ARCH_X86
#endif

#endif

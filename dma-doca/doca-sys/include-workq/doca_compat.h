/* doca_compat.h: marks on declarations.
 *
 * Written for this project from the names, types and numbers of DOCA 1.5 and 2.2, as public code uses them. Paragraphs of
 * one generation only stand between the #ifdef of its macro and an #endif. An installed tree has its own, without these. */
#ifndef DMA_DOCA_WORKQ_COMPAT_H
#define DMA_DOCA_WORKQ_COMPAT_H

#define DOCA_USED __attribute__((used))

/* May change or go: a program that calls it says so by defining DOCA_ALLOW_EXPERIMENTAL_API. */
#ifdef DOCA_ALLOW_EXPERIMENTAL_API
#define DOCA_EXPERIMENTAL
#else
#define DOCA_EXPERIMENTAL __attribute__((deprecated("experimental: define DOCA_ALLOW_EXPERIMENTAL_API to use it")))
#endif
#define __DOCA_EXPERIMENTAL DOCA_EXPERIMENTAL

#endif

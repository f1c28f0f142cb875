/* spdk/barrier.h: Memory barriers: the compiler's, between processors (smp), and towards devices.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). That
 * page describes each call. spdk-emu states where the stand-in differs. */
#ifndef SPDK_BARRIER_H
#define SPDK_BARRIER_H

#include "spdk/stdinc.h"

#define spdk_compiler_barrier() __asm__ volatile("" ::: "memory")

#if defined(__x86_64__)
#define spdk_rmb() __asm__ volatile("lfence" ::: "memory")
#define spdk_wmb() __asm__ volatile("sfence" ::: "memory")
#define spdk_mb() __asm__ volatile("mfence" ::: "memory")
#define spdk_smp_rmb() spdk_compiler_barrier()
#define spdk_smp_wmb() spdk_compiler_barrier()
#define spdk_smp_mb() __sync_synchronize()
#define spdk_ivdt_dcache(pdata) ((void)(pdata))
#elif defined(__aarch64__)
#define spdk_rmb() __asm__ volatile("dsb ld" ::: "memory")
#define spdk_wmb() __asm__ volatile("dsb st" ::: "memory")
#define spdk_mb() __asm__ volatile("dsb sy" ::: "memory")
#define spdk_smp_rmb() __asm__ volatile("dmb ishld" ::: "memory")
#define spdk_smp_wmb() __asm__ volatile("dmb ishst" ::: "memory")
#define spdk_smp_mb() __asm__ volatile("dmb ish" ::: "memory")
#define spdk_ivdt_dcache(pdata) __asm__ volatile("dc civac, %0" : : "r"(pdata) : "memory")
#else
#error "no barriers written for this processor: the stand-in is for x86-64 and AArch64"
#endif

#endif

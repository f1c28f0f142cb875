// Symbols that the compiler's libstdc++ needs and glibc 2.28 lacks. bindings/python/wheel links them into the NIXL
// plugin, where no other library sees them.
#include <errno.h>
#include <pthread.h>
#include <time.h>

// glibc 2.32: true while the process has one thread. libstdc++ then omits atomic operations, which is only an optimisation.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

// glibc 2.30: a wait until a time of `clock`. As libstdc++ does without it, the wait is until the same time of the clock of condition
// variables, CLOCK_REALTIME, and says that the time has passed only if it has on `clock`. Callers wait in a loop.
__attribute__((visibility("hidden"))) int pthread_cond_clockwait(
    pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until) {
  struct timespec here, there;
  if (clock_gettime(clock, &here) != 0 || clock_gettime(CLOCK_REALTIME, &there) != 0) {
    return EINVAL;
  }
  struct timespec end = {until->tv_sec - here.tv_sec + there.tv_sec, until->tv_nsec - here.tv_nsec + there.tv_nsec};
  while (end.tv_nsec >= 1000000000) {
    end.tv_nsec -= 1000000000;
    end.tv_sec += 1;
  }
  while (end.tv_nsec < 0) {
    end.tv_nsec += 1000000000;
    end.tv_sec -= 1;
  }
  const int status = pthread_cond_timedwait(condition, mutex, &end);
  if (status != ETIMEDOUT) {
    return status;
  }
  // The system's time may have been set forward meanwhile.
  clock_gettime(clock, &here);
  const int is_over = here.tv_sec > until->tv_sec || (here.tv_sec == until->tv_sec && here.tv_nsec >= until->tv_nsec);
  return is_over ? ETIMEDOUT : 0;
}

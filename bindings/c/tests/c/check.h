/* Checks for the test programs. A check that fails prints its line and the library's last error. */
#ifndef CHECK_H
#define CHECK_H

#include "dma.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int checks_failed;

static inline void check_failed(int line, const char *what) {
  dma_error error;
  memset(&error, 0, sizeof error);
  error.size = sizeof error;
  (void)dma_last_error(&error);
  printf("line %d: %s; last error: %s\n", line, what, error.text ? error.text : "none");
  fflush(stdout);
  checks_failed = 1;
}

#define CHECK(condition)                    \
  do {                                      \
    if (!(condition))                       \
      check_failed(__LINE__, #condition);   \
  } while (0)

/* Checks that a call returns DMA_OK. */
#define OK(call)                                             \
  do {                                                       \
    dma_status status_ = (call);                             \
    if (status_ != DMA_OK) {                                 \
      printf("%s: ", dma_status_text(status_));              \
      check_failed(__LINE__, #call);                         \
    }                                                        \
  } while (0)

/* Checks that a call fails with `expected`, and that the error has a text. */
#define FAILS(expected, call)                                                             \
  do {                                                                                    \
    dma_error error_;                                                                     \
    dma_status status_ = (call);                                                          \
    memset(&error_, 0, sizeof error_);                                                    \
    error_.size = sizeof error_;                                                          \
    (void)dma_last_error(&error_);                                                        \
    if (status_ != (expected) || error_.status != status_ || error_.text[0] == '\0') {    \
      printf("%s instead of %s: ", dma_status_text(status_), dma_status_text(expected)); \
      check_failed(__LINE__, #call);                                                      \
    }                                                                                     \
  } while (0)

#endif

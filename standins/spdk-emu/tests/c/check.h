/* Shared by the test programs. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(held) \
	do { \
		if (!(held)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #held); \
			exit(1); \
		} \
	} while (0)

#endif

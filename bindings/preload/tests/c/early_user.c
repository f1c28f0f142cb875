// A library whose relocation calls the function of resolver.c that chooses an address.
extern int chosen(void);
extern int (*early_function)(void);
int (*early_function)(void) = chosen;

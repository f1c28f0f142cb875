// A program whose libraries call memcpy before the loader has relocated the preloaded library.
extern int (*early_function)(void);
int main(void) { return early_function() == 1 ? 0 : 1; }

// A program that does nothing but load its libraries.
int main(void) {
    return 0;
}

// A program that only loads its libraries.
int main(void) {
    return 0;
}

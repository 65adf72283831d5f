// Nothing but what makes a program of it: see test_headers in CMakeLists.txt.
int main() {}

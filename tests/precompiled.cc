// Only an empty program: see test_headers in CMakeLists.txt.
int main() {}

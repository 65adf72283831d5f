# Compiles for 64-bit Arm on another processor: `cmake --preset arm`. It needs Debian's crossbuild-essential-arm64,
# qemu-user-binfmt, and of the architecture arm64 libhwloc-dev, libfmt-dev, libgtest-dev and libgomp1.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

# Debian keeps the libraries of every architecture beside each other, so they are found as this machine's own are. Only
# pkg-config has to be told whose descriptions it reads.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)

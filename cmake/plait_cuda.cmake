# Sets PLAIT_BUILD_CUDA if the plugin for NVIDIA GPUs can be compiled. It needs nvcc and CUTLASS's headers, which
# PLAIT_CUTLASS_INCLUDE then names.
set(PLAIT_BUILD_CUDA OFF)
if(PLAIT_CUDA STREQUAL "OFF")
  return()
endif()

# The oldest with which it was compiled.
set(oldest_cuda 13.0)
set(oldest_cutlass 4.2)

# plait_no_cuda(REASON): says why the plugin is not built, which is an error if it was asked for.
function(plait_no_cuda reason)
  if(PLAIT_CUDA STREQUAL "auto")
    message(STATUS "plait: ${reason}; building without the plugin for NVIDIA GPUs")
  else()
    message(FATAL_ERROR "plait: ${reason}: install it, or give -DPLAIT_CUDA=auto or OFF")
  endif()
endfunction()

# plait_find_cutlass(VARIABLE): the folder of CUTLASS's headers, or nothing.
function(plait_find_cutlass variable)
  set(found)
  set(folder ${PLAIT_CUTLASS_DIR})
  if(NOT folder)
    find_package(Python3 COMPONENTS Interpreter QUIET)
    if(Python3_FOUND)
      execute_process(
        COMMAND ${Python3_EXECUTABLE} -c
                "import importlib.util as util; print(util.find_spec('cutlass_library').origin)"
        OUTPUT_VARIABLE package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      if(package)
        cmake_path(REPLACE_FILENAME package source OUTPUT_VARIABLE folder)
      endif()
    endif()
  endif()
  set(version ${folder}/include/cutlass/version.h)
  if(folder AND EXISTS ${version})
    file(STRINGS ${version} lines REGEX "^#define CUTLASS_(MAJOR|MINOR) +[0-9]+")
    string(REGEX REPLACE "[^0-9;]" "" numbers "${lines}")
    list(JOIN numbers . number)
    if(number VERSION_GREATER_EQUAL oldest_cutlass)
      set(found ${folder}/include)
    endif()
  endif()
  set(${variable} "${found}" PARENT_SCOPE)
endfunction()

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  plait_no_cuda("the CUDA compiler nvcc was not found")
  return()
endif()
plait_find_cutlass(PLAIT_CUTLASS_INCLUDE)
if(NOT PLAIT_CUTLASS_INCLUDE)
  plait_no_cuda(
    "the headers of CUTLASS ${oldest_cutlass} (Python's nvidia-cutlass, or PLAIT_CUTLASS_DIR) were not found")
  return()
endif()
# The kernels use instructions that only this architecture has.
set(CMAKE_CUDA_ARCHITECTURES 90a-real)
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS oldest_cuda)
  plait_no_cuda("CUDA ${oldest_cuda} was not found, but ${CMAKE_CUDA_COMPILER_VERSION}")
  return()
endif()
find_package(CUDAToolkit REQUIRED QUIET)
set(PLAIT_BUILD_CUDA ON)

# CMake 3.25 does not know that this compiler has C++20, which is used for CUDA as for C++.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()

# An assertion of CUTLASS is a call, for which the compiler would have matrix instructions wait for one another.
add_library(plait_cuda_flags INTERFACE)
target_include_directories(plait_cuda_flags SYSTEM INTERFACE ${PLAIT_CUTLASS_INCLUDE})
target_compile_options(plait_cuda_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:-O3;-DNDEBUG;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra>")
if(PLAIT_CUDA_QUICK)
  target_compile_options(plait_cuda_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:--Ofast-compile=min>")
endif()
if(PROJECT_IS_TOP_LEVEL)
  target_compile_options(plait_cuda_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
endif()

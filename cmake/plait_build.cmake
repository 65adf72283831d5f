# How all targets of plait are compiled, and how modules are defined.

include(GNUInstallDirs)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
find_package(Threads REQUIRED)

add_library(plait_flags INTERFACE)
set(warnings -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual)
# Newer compilers may have new warnings, which must not stop packagers, nor a project that builds plait in its own tree.
option(PLAIT_WERROR "Treat warnings as errors" ${PROJECT_IS_TOP_LEVEL})
if(PLAIT_WERROR)
  list(APPEND warnings -Werror)
endif()
# The compiler of CUDA has options of its own: cmake/plait_cuda.cmake.
target_compile_options(plait_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>")
if(PLAIT_SANITIZE)
  target_compile_options(plait_flags INTERFACE -fsanitize=${PLAIT_SANITIZE} -fno-omit-frame-pointer
                                               -fno-sanitize-recover=all)
  target_link_options(plait_flags INTERFACE -fsanitize=${PLAIT_SANITIZE})
endif()
# Each check of the undefined-behaviour sanitizer has data with addresses, 20 MB of them in a program of tests. At a
# fixed address the linker fills these in; elsewhere it is done at each start, of some 4000.
if(PLAIT_SANITIZE MATCHES undefined)
  target_link_options(plait_flags INTERFACE $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
endif()

# Headers that most sources include, precompiled, because they take a large share of compile time. Sources with options
# of their own can't use them. clang-tidy reads each source without them, and so finds missing includes.
#
# In a sanitizer build only what computes is worth an optimiser's time, which is two fifths of the compiler's.
set(modules_that_compute base tensor gemm quant ops overlap ulysses heads nn experts predict)
function(plait_precompile name)
  add_library(${name} OBJECT ${PROJECT_SOURCE_DIR}/cmake/precompiled.cc)
  target_link_libraries(${name} PRIVATE plait_flags)
  target_compile_options(${name} PRIVATE ${ARGN})
  target_precompile_headers(${name} PRIVATE
    <algorithm> <array> <atomic> <functional> <map> <memory> <mutex> <optional> <span> <sstream> <string> <thread>
    <vector>)
endfunction()
plait_precompile(plait_headers)
if(PLAIT_SANITIZE)
  plait_precompile(plait_headers_unoptimised -O0)
endif()

# plait_compile_together(TARGET [APART ...]): compiles several sources at once, in sanitizer builds and in builds made
# once.
#
# Includes take most of the compile time of a source, and twice as long with a sanitizer. clang-tidy reads sources that
# have changed alone, and shows that they include what they need. Neighbours in a list of sources are often alike, also
# in the names that are local to them, so they are compiled in different groups. A source that is added moves those
# after it to the next groups. If names clash there, the compiler says so, and one source of the two goes into APART.
function(plait_compile_together target)
  if(NOT PLAIT_SANITIZE AND NOT PLAIT_COMPILE_TOGETHER)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "[.]cc$")
  list(REMOVE_ITEM sources "" ${ARGN})
  list(LENGTH sources count)
  math(EXPR groups "(${count} + 5) / 6")
  set(index 0)
  foreach(source IN LISTS sources)
    math(EXPR group "${index} % ${groups}")
    math(EXPR index "${index} + 1")
    # A source of several targets of a folder has one group. APART, it has none.
    get_source_file_property(known ${source} UNITY_GROUP)
    if(known STREQUAL NOTFOUND)
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
    endif()
  endforeach()
endfunction()

# plait_module(NAME SOURCES a.cc ... [APART b.cc ...] [DEPENDS module ...] [LIBRARIES target ...]
#              [PRECOMPILED <header> ...])
#
# A module is a folder of src/ or app/ and a static target plait_NAME that links only the modules it may include.
# Those of src/ become part of libplait; LIBRARIES are then libraries that libplait links too. PRECOMPILED replaces
# the headers above. APART lists sources whose local names clash with those of other sources.
function(plait_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;APART;DEPENDS;LIBRARIES;PRECOMPILED" ${ARGN})
  add_library(plait_${name} STATIC ${ARG_SOURCES} ${ARG_APART})
  # Users compile each source by itself, with neither of these.
  if(PLAIT_SANITIZE OR PLAIT_COMPILE_TOGETHER STREQUAL "all")
    plait_compile_together(plait_${name} ${ARG_APART})
  endif()
  set(headers plait_headers)
  if(PLAIT_SANITIZE AND NOT name IN_LIST modules_that_compute)
    target_compile_options(plait_${name} PRIVATE -O0)
    set(headers plait_headers_unoptimised)
  endif()
  target_include_directories(plait_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src
                                                  ${PROJECT_SOURCE_DIR}/app ${PROJECT_BINARY_DIR}/generated)
  target_link_libraries(plait_${name} PUBLIC plait_flags ${ARG_LIBRARIES})
  foreach(module IN LISTS ARG_DEPENDS)
    target_link_libraries(plait_${name} PUBLIC plait_${module})
  endforeach()
  if(ARG_PRECOMPILED)
    target_precompile_headers(plait_${name} PRIVATE ${ARG_PRECOMPILED})
  else()
    target_precompile_headers(plait_${name} REUSE_FROM ${headers})
  endif()
  set_property(GLOBAL APPEND PROPERTY PLAIT_MODULES ${name})
  set_property(GLOBAL APPEND PROPERTY PLAIT_MODULE_LIBRARIES ${ARG_LIBRARIES})
endfunction()

# How code is compiled that is compiled more often than it runs: quickly. In sanitizer builds an optimiser takes twice
# as long, and two checks a third to a half longer (six sources of the command: 11 to 13 s instead of 8 to 10, with
# objects of 8.6 MB instead of 5.1). The address sanitizer also ends a program at a null pointer. A target links this
# after plait_flags, which enables all checks.
add_library(plait_quick_flags INTERFACE)
if(PLAIT_SANITIZE)
  target_compile_options(plait_quick_flags INTERFACE -O0)
  if(PLAIT_SANITIZE MATCHES undefined)
    target_compile_options(plait_quick_flags INTERFACE -fno-sanitize=null,alignment)
  endif()
else()
  target_compile_options(plait_quick_flags INTERFACE -O1)
endif()

# plait_command_module(NAME [APART ...]): a module of which little is hot, as only the command has.
function(plait_command_module name)
  plait_compile_together(plait_${name} ${ARGN})
  target_link_libraries(plait_${name} PRIVATE plait_quick_flags)
endfunction()

# Installs the libraries, their headers, the command, the plugins, and the files for CMake (find_package) and
# pkg-config. Every path is relative, so the tree may be moved.

include(CMakePackageConfigHelpers)
set(PLAIT_INSTALL_CMAKEDIR ${CMAKE_INSTALL_LIBDIR}/cmake/plait)

install(TARGETS plait_shared plait_static EXPORT plaitTargets)
if(TARGET plait_command)
  install(TARGETS plait_command)
  get_target_property(pages plait_command PLAIT_PAGES)
  if(pages)
    install(DIRECTORY ${pages}/ TYPE DATA)
  endif()
endif()
# CMAKE_INSTALL_LIBDIR is not used: the command and the library both look in lib/plait/ of a parent folder.
foreach(plugin plait_mpi_openmpi plait_mpi_mpich plait_ucx plait_cuda)
  if(TARGET ${plugin})
    install(TARGETS ${plugin} DESTINATION lib/plait)
  endif()
endforeach()
install(DIRECTORY include/plait TYPE INCLUDE FILES_MATCHING PATTERN *.h)
install(FILES ${PROJECT_BINARY_DIR}/generated/plait/version.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/plait)

install(EXPORT plaitTargets NAMESPACE plait:: DESTINATION ${PLAIT_INSTALL_CMAKEDIR})
configure_package_config_file(cmake/plaitConfig.cmake.in ${PROJECT_BINARY_DIR}/plaitConfig.cmake
                              INSTALL_DESTINATION ${PLAIT_INSTALL_CMAKEDIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/plaitConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/plaitConfig.cmake ${PROJECT_BINARY_DIR}/plaitConfigVersion.cmake
        DESTINATION ${PLAIT_INSTALL_CMAKEDIR})

# plait.pc has its prefix relative to its own folder.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}
           OUTPUT_VARIABLE PLAIT_LIBDIR)
cmake_path(SET pkgconfig_dir ${CMAKE_INSTALL_PREFIX}/${PLAIT_LIBDIR}/pkgconfig)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${pkgconfig_dir}
           OUTPUT_VARIABLE PLAIT_PREFIX_FROM_PC)
# The libraries that a static libplait needs, with plain names.
get_property(private_libraries GLOBAL PROPERTY PLAIT_MODULE_LIBRARIES)
list(REMOVE_DUPLICATES private_libraries)
list(FILTER private_libraries INCLUDE REGEX "^[a-z]+$")
list(TRANSFORM private_libraries PREPEND "-l")
list(JOIN private_libraries " " PLAIT_PRIVATE_LIBRARIES)
configure_file(cmake/plait.pc.in ${PROJECT_BINARY_DIR}/plait.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/plait.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

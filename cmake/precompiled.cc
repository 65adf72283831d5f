// This file is empty: a target needs a source, and precompiled headers need a target. See
// plait_build.cmake.

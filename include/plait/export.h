// PLAIT_EXPORT marks the symbols that the shared library exports; all others are hidden.
#pragma once

#define PLAIT_EXPORT __attribute__((visibility("default")))

// PLAIT_EXPORT marks what the shared library shows to the outside; everything else stays inside.
#pragma once

#define PLAIT_EXPORT __attribute__((visibility("default")))

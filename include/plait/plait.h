// All of plait's public headers at once. Each of them can also be included alone.
#pragma once

#include "plait/dtype.h"
#include "plait/error.h"
#include "plait/export.h"
#include "plait/version.h"

// All of plait's public headers at once. Each of them can also be included alone.
#pragma once

#include "plait/buffer.h"
#include "plait/collectives.h"
#include "plait/communicator.h"
#include "plait/dtype.h"
#include "plait/error.h"
#include "plait/export.h"
#include "plait/link.h"
#include "plait/mailbox.h"
#include "plait/stream.h"
#include "plait/tag.h"
#include "plait/tensor_view.h"
#include "plait/timeline.h"
#include "plait/trace.h"
#include "plait/version.h"

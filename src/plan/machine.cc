#include "plan/machine.h"

#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/processor.h"
#include "plait/version.h"

namespace plait::plan {

std::string machine_fingerprint() {
  const base::Processor processor = base::read_processor();
  // It counts the host's processors, not those that this rank may use, so ranks that are bound to
  // different processors agree.
  std::string text = base::sentence("plait ", kVersion, ", ", processor.model, ", ",
                                    sysconf(_SC_NPROCESSORS_CONF), " processors");
  for (const auto& [feature, present] : processor.features) {
    if (present) text += ' ' + feature;
  }
  std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < ' '; }, ' ');
  return text;
}

}  // namespace plait::plan

#include "tune/files.h"

#include "plait/error.h"
#include "plan/cache.h"
#include "plan/settings/load.h"

namespace plait::tune {

Files read_files(const AutomaticOptions& options, const std::string& machine) try {
  Files files;
  bool is_named = true;
  if (options.cache && options.online) {
    files.path = *options.cache;
    files.online = options.online;
  } else {
    const plan::Loaded loaded = plan::load(plan::process_environment());
    files.path = options.cache.value_or(loaded.settings.plan_cache);
    files.online = options.online ? options.online : loaded.settings.tune_online;
    is_named = options.cache || loaded.origins.contains("plan_cache");
  }
  if (files.path.empty()) return files;
  try {
    if (const auto cache = plan::load_cache(files.path, machine)) files.cache = cache->text();
    if (const auto profile = plan::load_profile(plan::profile_path(files.path), machine))
      files.profile = plan::text_of(*profile);
  } catch (const Error& error) {
    if (is_named) throw;
    return {.online = files.online, .left_alone = error.what()};
  }
  return files;
} catch (const Error& error) {
  return {.refusal = error.what()};
}

}  // namespace plait::tune

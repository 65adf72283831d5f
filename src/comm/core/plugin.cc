#include "comm/core/plugin.h"

#include <dlfcn.h>
#include <cerrno>

#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/env.h"
#include "comm/core/build_name.h"

namespace plait::comm {
namespace {

namespace fs = std::filesystem;

// The folders of plugins: PLAIT_PLUGIN_PATH, or else beside the binary that holds this code: in its
// plait/, or in lib/plait/ of one of the three folders above (an install prefix, a build tree).
std::vector<fs::path> plugin_folders() {
  if (const auto path = base::env("PLAIT_PLUGIN_PATH")) return {*path};
  std::vector<fs::path> folders;
  Dl_info self = {};
  std::error_code failure;
  // Any address of this binary will do.
  if (::dladdr(reinterpret_cast<const void*>(&plugin_folders), &self) == 0) return folders;
  // For the program itself, dladdr() only knows the word by which it was started.
  const bool is_program = std::string_view(self.dli_fname) == program_invocation_name;
  const char* const binary = is_program ? "/proc/self/exe" : self.dli_fname;
  fs::path folder = fs::canonical(binary, failure).parent_path();
  if (failure) return folders;
  folders.push_back(folder / "plait");
  for (int up = 0; up < 3; ++up, folder = folder.parent_path())
    folders.push_back(folder / "lib" / "plait");
  return folders;
}

std::string refusal_to_find(const PluginFile& file) {
  const auto path = base::env("PLAIT_PLUGIN_PATH");
  if (path)
    return base::sentence("its plugin ", file.name, " is not in PLAIT_PLUGIN_PATH, ", *path);
  return base::sentence("its plugin ", file.name,
                        " is not in lib/plait/ beside this program or library; PLAIT_PLUGIN_PATH "
                        "can name its folder");
}

}  // namespace

std::optional<fs::path> find_plugin(const PluginFile& file) {
  for (const fs::path& folder : plugin_folders()) {
    std::error_code failure;
    if (fs::exists(folder / file.name, failure)) return folder / file.name;
  }
  return std::nullopt;
}

LoadedPlugin load_plugin(const PluginFile& file) {
  const auto path = find_plugin(file);
  if (!path) return {.refusal = refusal_to_find(file)};
  const int scope = file.global ? RTLD_GLOBAL : RTLD_LOCAL;
  void* library = ::dlopen(path->c_str(), RTLD_NOW | RTLD_NODELETE | scope);
  if (library == nullptr)
    return {.refusal = base::sentence("its plugin does not load: ", ::dlerror())};
  const auto entry = reinterpret_cast<PluginEntry>(::dlsym(library, file.entry_point));
  if (entry == nullptr)
    return {.refusal = base::sentence(path->string(), " is no plugin of plait")};
  const PluginHead* head = entry();
  if (head->build != build_name()) {
    return {.refusal =
                base::sentence("its plugin is of plait ", head->build, ", this is ", build_name())};
  }
  return {.head = head};
}

bool is_loaded(const char* library) {
  void* handle = ::dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr) ::dlclose(handle);
  return handle != nullptr;
}

}  // namespace plait::comm

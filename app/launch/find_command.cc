#include "launch/find_command.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/env.h"
#include "base/text.h"

namespace plait::launch {
namespace {

// 0, or the reason as an errno value.
int why_not(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return errno;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  return access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

bool is_absent(int reason) { return reason == ENOENT || reason == ENOTDIR; }

}  // namespace

Command find_command(const std::string& name) {
  if (name.empty()) return {"", kNotFound, "the command is empty"};
  if (name.find('/') != std::string::npos) {
    const int reason = why_not(name);
    if (reason == 0) return {name, 0, ""};
    return {"", is_absent(reason) ? kNotFound : kCannotRun,
            "cannot run " + name + ": " + std::generic_category().message(reason)};
  }
  std::string unusable;
  const std::string folders = base::env("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  for (const auto folder : base::split(folders, ':')) {
    const std::string path = (folder.empty() ? "." : std::string(folder)) + "/" + name;
    const int reason = why_not(path);
    if (reason == 0) return {path, 0, ""};
    if (reason == EACCES && unusable.empty()) unusable = path;
  }
  if (!unusable.empty())
    return {"", kCannotRun, "cannot run " + unusable + ": it is not executable"};
  const bool here = why_not("./" + name) == 0;
  return {"", kNotFound, "command not found: " + name + (here ? "; ./" + name + " exists" : "")};
}

}  // namespace plait::launch

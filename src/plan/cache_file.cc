// Reads and writes the files of plans and profiles.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/atomic_file.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/fd.h"
#include "base/read_file.h"
#include "plan/cache.h"

namespace plait::plan {
namespace {

namespace fs = std::filesystem;

// Reading and writing a cache takes a millisecond. If another process locks the directory for
// longer, it does something else with it, and saving goes on without the lock: at most some lines
// are lost, which the next run measures again.
constexpr base::Nanoseconds kPatience = 2 * base::kSecond;

// A line takes some 200 bytes, so this is enough for a million problems.
constexpr std::size_t kLongestFile = std::size_t{256} << 20;

fs::path folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

void refuse_folder(const fs::path& folder, const std::error_code& failure) {
  if (failure)
    base::fail(Code::system, "cannot create the folder ", folder.string(), ": ", failure.message());
}

void make_folder(const std::string& path) {
  std::error_code failure;
  fs::create_directories(folder_of(path), failure);
  refuse_folder(folder_of(path), failure);
}

// Checks whether the folder can be created: looks at the nearest parent that exists.
void check_folder(const fs::path& folder) {
  std::error_code failure;
  fs::path above = fs::absolute(folder);
  while (!fs::exists(above, failure) && !failure && above.has_relative_path())
    above = above.parent_path();
  if (!failure && !fs::is_directory(above, failure))
    failure = std::make_error_code(std::errc::not_a_directory);
  if (!failure && ::access(above.c_str(), W_OK | X_OK) != 0)
    failure = std::error_code(errno, std::generic_category());
  refuse_folder(folder, failure);
}

// Holds the lock for one writer at a time, until the descriptor is closed.
class Turn {
 public:
  explicit Turn(const std::string& path)
      : folder_(open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    const base::Nanoseconds deadline = base::now() + kPatience;
    while (folder_ && flock(folder_.get(), LOCK_EX | LOCK_NB) != 0 && base::now() < deadline)
      base::sleep_until(base::now() + base::kMillisecond);
  }

 private:
  base::Fd folder_;
};

void check_machine(const std::string& theirs, const std::string& ours) {
  PLAIT_CHECK(theirs == ours, "it was measured on \"", theirs, "\", and this is \"", ours, '"');
}

// Errors in the text are reported with the file's name.
template <class Value, class Parse>
std::optional<Value> load(const std::string& path, const Parse& parse) {
  const auto text = read_text(path);
  if (!text) return std::nullopt;
  try {
    return parse(*text);
  } catch (const Error& error) {
    base::fail(Code::invalid_argument, path, ": ", error.what());
  }
}

}  // namespace

std::string profile_path(const std::string& cache_path) { return cache_path + ".profile"; }

std::optional<std::string> read_text(const std::string& path) {
  std::error_code failure;
  if (!fs::exists(path, failure) && !failure) return std::nullopt;
  PLAIT_CHECK(!fs::is_directory(path, failure), path, " is a folder, not a file");
  return base::read_file(path, kLongestFile);
}

void write_text(const std::string& path, std::string_view text) {
  make_folder(path);
  base::AtomicFile file(path);
  file.append(text);
  file.commit();
}

void change_text(const std::string& path,
                 base::FunctionRef<std::string(std::string_view text)> change) {
  make_folder(path);
  const Turn turn(path);
  const std::string before = read_text(path).value_or(std::string());
  const std::string after = change(before);
  if (after != before) write_text(path, after);
}

void check_place(const std::string& path) {
  std::error_code none;
  if (!fs::is_directory(folder_of(path), none)) return check_folder(folder_of(path));
  base::check_writable(path);
}

std::optional<PlanCache> load_cache(const std::string& path, const std::string& machine) {
  auto cache = load<PlanCache>(path, [&](const std::string& text) {
    PlanCache there = PlanCache::parse(text);
    check_machine(there.machine(), machine);
    return there;
  });
  if (cache && cache->entries().empty()) cache.reset();
  return cache;
}

std::optional<MachineProfile> load_profile(const std::string& path, const std::string& machine) {
  return load<MachineProfile>(path, [&](const std::string& text) {
    MachineProfile profile = parse_profile(text);
    check_machine(profile.machine, machine);
    return profile;
  });
}

void save_cache(const std::string& path, const PlanCache& cache) {
  save_cache(path, cache, PlanCache(cache.machine()));
}

void save_cache(const std::string& path, const PlanCache& cache, const PlanCache& known) {
  make_folder(path);
  const Turn turn(path);
  PlanCache all = cache;
  if (const auto there = load_cache(path, cache.machine())) all.merge(*there);
  all.merge(known);
  write_text(path, all.text());
}

}  // namespace plait::plan

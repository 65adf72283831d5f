// Measured plans, stored as text that people can read and compare:
//
//   plait plans 2
//   machine plait 0.1.0, AMD EPYC, 2 processors avx2 fma
//   op=matmul_all_reduce m=512 n=4096 k=4096 ... link=10gbit,5us | fused | 21000000 | 38000000
//
// One line per problem, sorted by their texts: the plan, its nanoseconds, and those of serial. Text
// that can't be read is refused with a sentence, and so are plans of another machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "plait/plan.h"
#include "plan/profile.h"

namespace plait::plan {

class PlanCache final : public PlanSource {
 public:
  struct Entry {
    Plan plan;
    std::int64_t nanoseconds = 0;
    std::int64_t serial = 0;

    bool operator==(const Entry&) const = default;
  };

  // An empty cache of the machine with this fingerprint.
  explicit PlanCache(std::string machine) : machine_(std::move(machine)) {}

  // Error{invalid_argument} names the line that can't be read.
  static PlanCache parse(std::string_view text);
  std::string text() const;

  const std::string& machine() const { return machine_; }
  const std::map<std::string, Entry>& entries() const { return entries_; }  // by the key's text

  // Replaces the entry of the problem.
  void add(const PlanKey& key, const Entry& entry);

  // Adds the entries whose problems this cache does not have.
  void merge(const PlanCache& other);

  std::optional<Plan> find(const PlanKey& key) const override;

  bool operator==(const PlanCache& other) const {
    return machine_ == other.machine_ && entries_ == other.entries_;
  }

 private:
  std::string machine_;
  std::map<std::string, Entry> entries_;
};

// For tables that are asked in every call.
struct KeyHash {
  std::size_t operator()(const PlanKey& key) const;
};

// The path of the profile that belongs to a cache; it is in the same directory.
std::string profile_path(const std::string& cache_path);

// Returns the file's text; nullopt if there is no file. Error{system} if it can't be read.
std::optional<std::string> read_text(const std::string& path);

// Creates missing directories. The file appears complete or not at all.
void write_text(const std::string& path, std::string_view text);

// Replaces a file's text, empty if there is no file, by another, if the two differ. Writers of a
// folder's files take turns, as in save_cache().
void change_text(const std::string& path,
                 base::FunctionRef<std::string(std::string_view text)> change);

// Throws what write_text() would throw, but creates no file and no directory.
void check_place(const std::string& path);

// nullopt: there is no file, or it has no entries. Error{invalid_argument} names a file that can't
// be read or belongs to another machine.
std::optional<PlanCache> load_cache(const std::string& path, const std::string& machine);

std::optional<MachineProfile> load_profile(const std::string& path, const std::string& machine);

// Adds entries to the file; those of `known` only for problems that the file does not have.
// Processes that save at the same time take turns, and each waits for its turn for at most 2 s. A
// file that can't be read is refused, not overwritten.
void save_cache(const std::string& path, const PlanCache& cache);
void save_cache(const std::string& path, const PlanCache& cache, const PlanCache& known);

}  // namespace plait::plan

// Plans that were measured, as a text that people can read and compare:
//
//   plait plans 2
//   machine plait 0.1.0, AMD EPYC, 2 processors avx2 fma
//   op=matmul_all_reduce m=512 n=4096 k=4096 ... link=10gbit,5us | fused | 21000000 | 38000000
//
// A line for each problem, in the order of their texts: the plan, its nanoseconds, and those of
// serial. What was measured on another machine, or can't be read, is refused with a sentence.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "plait/plan.h"
#include "plan/profile.h"

namespace plait {

class PlanCache final : public PlanSource {
 public:
  struct Entry {
    Plan plan;
    std::int64_t nanoseconds = 0;
    std::int64_t serial = 0;

    bool operator==(const Entry&) const = default;
  };

  // Of the machine with this fingerprint; empty.
  explicit PlanCache(std::string machine) : machine_(std::move(machine)) {}

  // Error{invalid_argument} says which line can't be read.
  static PlanCache parse(std::string_view text);
  std::string text() const;

  const std::string& machine() const { return machine_; }
  const std::map<std::string, Entry>& entries() const { return entries_; }  // by the key's text

  // Replaces what is known of the problem.
  void add(const PlanKey& key, const Entry& entry);

  // Takes what the other knows and this one doesn't.
  void merge(const PlanCache& other);

  std::optional<Plan> find(const PlanKey& key) const override;

  bool operator==(const PlanCache& other) const {
    return machine_ == other.machine_ && entries_ == other.entries_;
  }

 private:
  std::string machine_;
  std::map<std::string, Entry> entries_;
};

// Where the profile is kept that belongs to a cache: beside it.
std::string profile_path(const std::string& cache_path);

// The file's text; nullopt: there is none. Error{system} where it can't be read.
std::optional<std::string> read_text(const std::string& path);

// The file appears complete or not at all; its folders are made.
void write_text(const std::string& path, std::string_view text);

// Throws where write_text() would; leaves nothing behind, and no folder.
void check_place(const std::string& path);

// Error{invalid_argument} names the file where it is of another machine, or can't be read; nullopt:
// there is none, or no entry in it.
std::optional<PlanCache> load_cache(const std::string& path, const std::string& machine);

std::optional<MachineProfile> load_profile(const std::string& path, const std::string& machine);

// Adds to what is in the file; of `known` only what is not there. Two processes that do so at once
// take turns, of which each is waited for for 2 s; what is there and can't be trusted is not
// overwritten, but refused.
void save_cache(const std::string& path, const PlanCache& cache);
void save_cache(const std::string& path, const PlanCache& cache, const PlanCache& known);

}  // namespace plait

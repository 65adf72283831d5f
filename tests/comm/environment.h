// An environment in which no launcher and no setting of plait is left, for tests to write in.
#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

extern char** environ;  // NOLINT: POSIX names it so

namespace plait {

// Puts back what was there when it goes.
class Environment {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  explicit Environment(const Variables& variables = {}) {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const auto equals = text.find('=');
      before_[text.substr(0, equals)] = text.substr(equals + 1);
    }
    for (const auto& [name, value] : before_) {
      if (is_ours(name)) ::unsetenv(name.c_str());
    }
    for (const auto& [name, value] : variables) set(name, value);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const std::string& name : written_) ::unsetenv(name.c_str());
    for (const auto& [name, value] : before_) ::setenv(name.c_str(), value.c_str(), 1);
  }

  void set(const std::string& name, const std::string& value) {
    ::setenv(name.c_str(), value.c_str(), 1);
    written_.push_back(name);
  }

 private:
  static bool is_ours(const std::string& name) {
    for (const char* prefix : {"PLAIT_", "SLURM_", "OMPI_", "PMIX_", "PMI_", "PALS_", "MPI_",
                               "MV2_", "JSM_", "TORCHELASTIC_", "MASTER_"}) {
      if (name.starts_with(prefix)) return true;
    }
    return name == "RANK" || name == "WORLD_SIZE" || name == "LOCAL_RANK" ||
           name == "LOCAL_WORLD_SIZE";
  }

  std::map<std::string, std::string> before_;
  std::vector<std::string> written_;
};

}  // namespace plait

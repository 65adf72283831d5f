#include "comm/shm/process_table.h"

#include <unistd.h>

#include <cstddef>
#include <utility>

#include "base/check.h"
#include "base/host.h"
#include "base/process.h"
#include "base/text.h"

namespace plait::comm::shm {

using base::sentence;

namespace {

// The namespaces in which this process's pid and start mean something: two of them have the same
// pids.
std::string namespaces_of_pids() {
  return sentence(base::namespace_id("pid"), ' ', base::namespace_id("time"));
}

}  // namespace

std::string ProcessTable::introduce_this_process() {
  return sentence(::getpid(), ' ', base::start_of(::getpid()), ' ', namespaces_of_pids());
}

ProcessTable::ProcessTable(base::Fd file, const std::vector<std::string>& introductions)
    : file_(std::move(file)) {
  processes_.reserve(introductions.size());
  for (const std::string& introduction : introductions) processes_.push_back(read(introduction));
}

ProcessTable::Process ProcessTable::read(const std::string& introduction) {
  const auto words = base::split(introduction, ' ');
  const auto number = [&](std::size_t word) {
    return words.size() > word ? base::parse_int(words[word]).value_or(0) : 0;
  };
  return {.pid = static_cast<pid_t>(number(0)),
          .start = static_cast<std::uint64_t>(number(1)),
          .is_visible = number(1) != 0 && introduction.ends_with(' ' + namespaces_of_pids())};
}

bool ProcessTable::has_ended(int number) const {
  if (const auto lives = file_.is_locked(number)) return !*lives;
  const Process& process = processes_[number];
  return process.is_visible && base::has_ended(base::Fd(), process.pid, process.start);
}

std::string ProcessTable::describe(int number) const {
  const pid_t pid = processes_[number].pid;
  if (pid == 0) return "its pid is not known yet";
  const std::string state = base::state_of(pid);
  return sentence("pid ", pid, state.empty() || state == "dead" ? "" : ", ",
                  state == "dead" ? "" : state);
}

}  // namespace plait::comm::shm

#include "ops/op_cache.h"

#include <algorithm>
#include <typeinfo>

#include "base/default_floats.h"
#include "comm/session/state.h"
#include "ops/busy.h"
#include "ops/op_checks.h"

namespace plait::ops {

OpCache& OpCache::of(Communicator& comm) {
  std::shared_ptr<void>& kept = comm.state().kept(typeid(OpCache));
  if (kept == nullptr) kept = std::make_shared<OpCache>();
  return *static_cast<OpCache*>(kept.get());
}

void OpCache::run(const OpDesc& desc, Communicator& comm, const OpOptions& options,
                  const OpCall& call) {
  const Communicator::State::Use use(comm.state());
  refuse_within_another(comm.state(), name(desc.op));  // find() might throw out what is running
  const auto follow = [&](const Plan& plan) { run(find(desc, comm, options), call, plan); };
  if (!asks_for_plans(desc, options)) {
    follow(plan_for(desc, comm, options));
  } else {
    ask(*options.plans, key_of(desc, comm, options), follow);
  }
}

void OpCache::ask(const PlanSource& plans, const PlanKey& key,
                  base::FunctionRef<void(const Plan& plan)> call) {
  const Plan plan = [&] {
    const base::DefaultFloats floats;  // predictions decide it, which ranks must agree upon
    return checked(key.op, plans.next(key));
  }();
  call(plan);
  const base::DefaultFloats floats;
  plans.took(key, plan, last_);
}

void OpCache::run(Entry& entry, const OpCall& call, const Plan& plan) {
  const std::int64_t m = rows_of(entry.args.desc.op, call);
  entry.runner->set_up(call, m, plan);
  const base::Nanoseconds begin = base::now();
  entry.runner->run(call, m, plan);
  last_ = base::now() - begin;
  // The first call with more rows adds their memory, and a product's run its workspace.
  const std::size_t bytes = entry.runner->held_bytes();
  if (bytes == entry.bytes) return;
  entry.bytes = bytes;
  make_room();
}

OpCache::Args OpCache::args_of(OpDesc desc, const OpOptions& options) {
  desc.m = 0;
  return {.desc = desc,
          .wire = options.wire,
          .shares = options.shares,
          .threads = options.threads,
          .backend = options.backend};
}

OpCache::Entry& OpCache::find(const OpDesc& desc, Communicator& comm, const OpOptions& options) {
  Args args = args_of(desc, options);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.args == args; });
  if (found != entries_.end()) {
    std::rotate(found, found + 1, entries_.end());
  } else {
    auto runner = std::make_unique<OpRunner>(desc, comm, options);
    entries_.push_back({.args = std::move(args), .runner = std::move(runner)});
    make_room();
  }
  return entries_.back();
}

void OpCache::make_room() {
  while (entries_.size() > 1 && (entries_.size() > limits_.entries || bytes() > limits_.bytes))
    entries_.erase(entries_.begin());
}

std::size_t OpCache::bytes() const {
  std::size_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.bytes;
  return bytes;
}

}  // namespace plait::ops

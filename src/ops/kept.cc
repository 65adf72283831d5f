#include "ops/kept.h"

#include <algorithm>
#include <typeinfo>

#include "base/default_floats.h"
#include "comm/state.h"
#include "ops/busy.h"
#include "ops/checks.h"

namespace plait::ops {

Kept& Kept::of(Communicator& comm) {
  std::shared_ptr<void>& kept = comm.state().kept(typeid(Kept));
  if (kept == nullptr) kept = std::make_shared<Kept>();
  return *static_cast<Kept*>(kept.get());
}

void Kept::run(const OpDesc& desc, Communicator& comm, const OpOptions& options,
               const OpCall& call) {
  const Communicator::State::Use use(comm.state());
  refuse_within_another(comm.state(), desc.op);  // find() might throw out what is running
  const auto follow = [&](const Plan& plan) { run(find(desc, comm, options), call, plan); };
  if (options.plan || options.plans == nullptr) {
    follow(plan_for(desc, comm, options));
  } else {
    ask(*options.plans, key_of(desc, comm, options), follow);
  }
}

void Kept::ask(const PlanSource& plans, const PlanKey& key,
               base::FunctionRef<void(const Plan& plan)> call) {
  const Plan plan = [&] {
    const base::DefaultFloats floats;  // predictions decide it, which ranks must agree upon
    return checked(key.op, plans.next(key));
  }();
  call(plan);
  plans.took(key, plan, last_);
}

void Kept::run(One& one, const OpCall& call, const Plan& plan) {
  const std::int64_t m = rows_of(one.kind.desc.op, call);
  one.ready->fit(m, plan);
  const base::Nanoseconds begin = base::now();
  one.ready->run(call, m, plan);
  last_ = base::now() - begin;
  // What more rows take comes with their first call, and what a product works in with its run.
  const std::size_t bytes = one.ready->held_bytes();
  if (bytes == one.bytes) return;
  one.bytes = bytes;
  make_room();
}

Kept::Kind Kept::kind_of(OpDesc desc, const OpOptions& options) {
  desc.m = 0;
  return {.desc = desc,
          .wire = options.wire,
          .shares = options.shares,
          .threads = options.threads,
          .backend = options.backend};
}

Kept::One& Kept::find(const OpDesc& desc, Communicator& comm, const OpOptions& options) {
  Kind kind = kind_of(desc, options);
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const One& one) { return one.kind == kind; });
  if (found != kept_.end()) {
    std::rotate(found, found + 1, kept_.end());
  } else {
    auto ready = std::make_unique<Ready>(desc, comm, options);
    kept_.push_back({.kind = std::move(kind), .ready = std::move(ready)});
    make_room();
  }
  return kept_.back();
}

void Kept::make_room() {
  while (kept_.size() > 1 && (kept_.size() > limits_.kinds || bytes() > limits_.bytes))
    kept_.erase(kept_.begin());
}

std::size_t Kept::bytes() const {
  std::size_t bytes = 0;
  for (const One& one : kept_) bytes += one.bytes;
  return bytes;
}

}  // namespace plait::ops

// One call of plait/ulysses.h or plait/columns.h on one rank, ready to be measured, with its
// operands: what tune::OpCase is for the others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "measure/op_setup.h"
#include "plait/buffer.h"
#include "plait/communicator.h"
#include "tune/op_case.h"

namespace plait::measure {

class ExchangeCase {
 public:
  // `what` is the operator of the setup.
  ExchangeCase(const OpSetup& setup, const ExchangeSetup& what, const OpSize& size,
               const Communicator& comm);

  // The bytes that the busiest link carries in one direction.
  double bytes_on_link() const;

  // Runs the operator with one plan over one communicator. Collective; must not outlive the case.
  class Runner {
   public:
    Runner(const ExchangeCase& one, const Plan& plan, Communicator& comm)
        : case_(one), plan_(plan), comm_(comm) {}
    void run(std::optional<double> ns_per_flop = {});
    void communicate() { run(0.0); }  // everything but the product

   private:
    void call();

    const ExchangeCase& case_;
    Plan plan_;
    Communicator& comm_;
  };

  std::unique_ptr<tune::OpCase::Runner> product(Communicator& comm) const {
    return own_.product(comm);
  }
  std::unique_ptr<Runner> runner(const Plan& plan, Communicator& comm) const {
    return std::make_unique<Runner>(*this, plan, comm);
  }

  double flops() const { return own_.flops(); }
  ConstTensorView out() const { return product_first_ ? columns() : own_.out(); }

 private:
  std::int64_t width() const;  // of `columns`
  TensorView columns() const;

  const OpSetup& setup_;
  bool is_gather_;  // else an all-to-all
  bool product_first_;
  OpSize size_;
  ColumnGroups groups_;
  int rank_;
  std::int64_t own_columns_;
  tune::OpCase own_;  // the product of own rows, or by own columns
  Buffer columns_;    // all rows of own columns, or of all columns
};

}  // namespace plait::measure

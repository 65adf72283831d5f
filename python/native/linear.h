// Linear layers as Python holds them.
#pragma once

#include "communicator.h"
#include "plait/linear.h"

namespace plait::python {

// A layer takes turns with the other calls of its communicator.
class PyLinear {
 public:
  PyLinear(const LinearDesc& desc, PyCommunicator& comm) : comm_(comm), desc_(desc) {}
  PyLinear(const PyLinear&) = delete;
  PyLinear& operator=(const PyLinear&) = delete;
  virtual ~PyLinear() = default;

  virtual void forward(const LinearForward& call, LinearState* state) = 0;

  PyCommunicator& comm() const { return comm_; }
  const LinearDesc& desc() const { return desc_; }

 private:
  PyCommunicator& comm_;
  LinearDesc desc_;
};

}  // namespace plait::python

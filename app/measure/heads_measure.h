// Measures what follows a product by ranks' shares of a vocabulary, and what frameworks do in its
// place with the logits of all rows.
#pragma once

#include <string>
#include <vector>

#include "measure/op_setup.h"
#include "measure/race.h"
#include "measure/recording.h"
#include "plait/communicator.h"

namespace plait::measure {

// top: matmul_top(). logits: matmul_all_gather_columns(). columns: all_gather_columns(), of logits
// that are there. loss: matmul_cross_entropy_with_gradient(). loss-alone: matmul_cross_entropy().
// log-probs: matmul_log_probs().
const std::vector<std::string>& heads_words();

struct HeadsSetup {
  std::vector<OpSize> sizes;  // n: ids of all ranks
  std::vector<std::string> heads;
  std::int64_t top = 1;  // logits that are kept of a row
  Dtype x = Dtype::bf16;
  int ranks = 2;
  std::string transport;
  std::optional<Link> link;
  int threads = 1;
  Effort effort;
};

struct HeadTimes {
  std::string head;
  OpSize size;
  Times time;
  // The time with gathered logits: the product, a gather of transposed logits, and a search. Losses
  // and probabilities have none: their logits would be gigabytes.
  std::optional<Times> gathered;
  Times products;  // alone; of "columns": nothing
  Times reading;   // of the weight that a rank has, by all ranks at once
};

// Collective; the result is the same on all ranks.
std::vector<HeadTimes> measure(const HeadsSetup& setup, Communicator& comm);

// Records the first head in the first size: with gathered logits, if it has this form, and by
// itself. Collective.
Recorded record(const HeadsSetup& setup, Communicator& comm);

// Refuses a problem whose operands are more than this host's memory can hold now.
void check_memory(const HeadsSetup& setup, const OpSize& size, int world);

}  // namespace plait::measure

// The output of plait run: its own messages and, with --prefix, the ranks' output, merged by lines.
// Each line of rank 3 is written whole after "[3] ". Standard output and standard error stay
// separate.
#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launch/lines.h"
#include "launch/output_stream.h"

namespace plait::launch {

class Output {
 public:
  // `merges`: the ranks write into pipes, from which we read their lines.
  explicit Output(bool merges);

  // Makes the rank's two pipes and returns the far ends, the rank's standard output and error.
  // Close them when the rank has been started.
  std::array<base::Fd, 2> connect(int rank);

  // Appends what to poll for to `polls`. serve() takes the results, from the same position on.
  void add_to(std::vector<pollfd>& polls);
  void serve(const pollfd* polls);

  // The output that can't be written any more, and the reason; each failure is returned once, then
  // "".
  std::string take_failure();

  // Writes a message of our own, never in the middle of a rank's line.
  void say(const std::string& sentence);

  // Reads what is left in the pipes, after all ranks have ended.
  void finish();
  bool pending() const;
  void drop();  // discards what no reader has taken

 private:
  struct RankPipe {
    base::Fd fd;
    Lines lines;
    OutputStream* output;
  };

  // One stream serves both descriptors if they have the same destination; otherwise a line of one
  // could appear within a line of the other. Our own messages need only standard error.
  OutputStream& output_for(int fd) { return *(outputs_[fd - 1] ? outputs_[fd - 1] : outputs_[0]); }
  bool read_some(RankPipe& pipe);

  std::array<std::unique_ptr<OutputStream>, 2> outputs_;
  std::vector<RankPipe> pipes_;
  std::vector<RankPipe*> polled_pipes_;
  std::vector<OutputStream*> polled_outputs_;
};

}  // namespace plait::launch

// What plait run writes: its own sentences and, where lines are to have a prefix, the ranks'
// output, merged line by line: each line of rank 3 comes out whole, behind "[3] ", standard output
// and standard error apart.
#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "cli/launch/lines.h"
#include "cli/sink.h"

namespace plait::cli {

class Output {
 public:
  // `merges`: the ranks write into pipes, from which we take their lines.
  explicit Output(bool merges);

  // Makes the rank's two pipes. Their far ends are the rank's standard output and error: close them
  // here once it has been started.
  std::array<base::Fd, 2> connect(int rank);

  // What to poll for, appended to `polls`; then what poll() said, from there on.
  void add_to(std::vector<pollfd>& polls);
  void serve(const pollfd* polls);

  // A sentence of our own, never in the middle of a rank's line whose end we know.
  void say(const std::string& sentence);

  // All ranks have ended: takes what is still in their pipes.
  void finish();
  bool pending() const;
  void drop();  // gives up what no reader has taken

 private:
  struct Stream {
    base::Fd pipe;
    Lines lines;
    Sink* sink;
  };

  // One for both, if they go to the same place: else a line of one could come out within a line of
  // the other. Our own sentences need only standard error's.
  Sink& sink(int fd) { return *(sinks_[fd - 1] ? sinks_[fd - 1] : sinks_[0]); }
  bool read_some(Stream& stream);

  std::array<std::unique_ptr<Sink>, 2> sinks_;
  std::vector<Stream> streams_;
  std::vector<Stream*> polled_;
  std::vector<Sink*> polled_sinks_;
};

}  // namespace plait::cli

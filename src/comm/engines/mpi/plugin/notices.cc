#include "comm/engines/mpi/plugin/notices.h"

#include <cstddef>
#include <cstring>

#include "comm/engines/mpi/plugin/session.h"

namespace plait::comm::mpi {
namespace {

std::string bytes_of(const Notice& notice) {
  const std::size_t bytes = offsetof(Notice, sentence) + std::strlen(notice.sentence.data()) + 1;
  return {reinterpret_cast<const char*>(&notice), bytes};
}

}  // namespace

Notice notice_of(Notice::Kind kind, const Failure& failure) {
  Notice notice = {.kind = kind, .code = failure.code, .culprit = failure.culprit};
  failure.sentence.copy(notice.sentence.data(), notice.sentence.size() - 1);
  return notice;
}

void NoticeSend::start(int peer, const Notice& notice) {
  if (!members_.may_send_to(peer)) return;
  const std::string& text = texts_.emplace_back(bytes_of(notice));
  const auto held = hold_mpi();
  // A peer that can't be told can't be helped.
  MPI_Isend(text.data(), static_cast<int>(text.size()), MPI_BYTE, members_.processes[peer],
            members_.tag_of(peer, kNoticeTag), members_.for_agreements(),
            &sends_.emplace_back(MPI_REQUEST_NULL));
}

bool NoticeSend::is_done() {
  const auto held = hold_mpi();
  int done = 0;
  MPI_Testall(static_cast<int>(sends_.size()), sends_.data(), &done, MPI_STATUSES_IGNORE);
  return done != 0;
}

}  // namespace plait::comm::mpi

// The messages of ranks before their first frame.
#pragma once

#include <sched.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace plait::comm::tcp {

enum class MessageKind : std::uint32_t {
  hello,
  challenge,
  proof,
  welcome,
  refusal,
  mismatch,
  interrupted,
  mark,    // of rank 0's process, for ranks that wait for its welcome
  missing  // the question which ranks have not come, and rank 0's answer
};

struct Message {
  MessageKind kind;
  std::string text;
};

// The longest text that is read from an unknown process, and from rank 0 after it has proved its
// identity.
inline constexpr std::uint32_t kMostHelloBytes = 16 << 10;
inline constexpr std::uint32_t kMostWelcomeBytes = 64 << 20;

// Reads one message and nothing after it: frames may follow at once. `bytes` is what has come of it
// so far. Null: it isn't whole yet, or `is_open` turns false where nothing sensible can come.
std::optional<Message> read_message(const base::Fd& socket, std::string& bytes, std::uint32_t most,
                                    bool& is_open);

std::string message_of(MessageKind kind, const std::string& text);

// For a short message. False where it can't be sent within a second.
bool send_message(const base::Fd& socket, MessageKind kind, const std::string& text);

// In the place of what isn't known.
inline constexpr const char* kUnknown = "?";

// A process's description of itself for the others, as words of one line.
struct PeerInfo {
  std::string build;
  std::string host;  // see base::host_id()
  std::string name;  // of the host, for people
  std::string pid;
  std::string port;
  std::string cpus;                  // that it may run on, as bytes in hex
  std::string hosts;                 // its addresses, separated by commas
  std::string interface;             // that the user has chosen, if one
  std::string transport = kUnknown;  // that it uses

  bool has_interface() const { return interface != kUnknown; }
};

// `toward`: see local_hosts().
PeerInfo info_of_this_process(int port, const std::string& toward = "");
std::string write(const PeerInfo& info);
std::optional<PeerInfo> read_peer_info(std::string_view text);
cpu_set_t cpus_of(const PeerInfo& info);

// The build that a PeerInfo or a hello of any build begins with; empty: the text is neither.
std::string build_in(std::string_view text);

// A caller's first words.
struct Hello {
  std::string job;
  int rank;
  int to;  // the rank that is called: an address may lead to another host than its owner meant
  int world;
  bool has_secret;    // and will go on only with a rank that proves to know it
  std::string nonce;  // 32 hex digits that no earlier hello had
  PeerInfo info;
};

std::string write(const Hello& hello);
std::optional<Hello> read_hello(const std::string& text);

// The proofs with which each side of a connection shows the other that it knows the key. Both
// depend on all of the hello, with the ranks and the job, on the random numbers of both sides, and
// on the side: a proof is of no use in another connection, nor in the other direction.
struct Proofs {
  std::string listener;
  std::string caller;
};
Proofs prove(const std::string& key, const std::string& hello, const std::string& nonce);

// A listener's answer to a hello: its own nonce and proof.
struct Challenge {
  std::string nonce;
  std::string proof;
};
std::string write(const Challenge& challenge);
std::optional<Challenge> read_challenge(const std::string& text);

// The words of an unknown process, fit to be shown: not too many, and nothing that a terminal
// obeys.
std::string printable(std::string_view text);

}  // namespace plait::comm::tcp

#include "plan/settings/toml.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace plait::plan {
namespace {

using Path = std::vector<std::string>;

constexpr std::size_t kTables = 2;  // one within the other, as in coc_cfgs.customized_coc

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_control(char c) {
  return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == '\x7f';
}

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

bool is_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// "4_096" → 4096, "+4" → 4, "0x10" → 16
std::optional<std::int64_t> parse_whole(std::string_view word) {
  for (std::size_t at = word.find('_'); at != word.npos; at = word.find('_', at + 1)) {
    const bool between = at > 0 && at + 1 < word.size();
    if (!between || !is_digit(word[at - 1]) || !is_digit(word[at + 1])) return std::nullopt;
  }
  std::string digits(word);
  std::erase(digits, '_');
  int base = 10;
  std::size_t begin = digits.starts_with('+') ? 1 : 0;
  for (const auto& [prefix, its_base] : {std::pair{"0x", 16}, {"0o", 8}, {"0b", 2}}) {
    if (!digits.starts_with(prefix)) continue;
    base = its_base;
    begin = 2;
  }
  if (begin > 0 && digits.substr(begin, 1) == "-") return std::nullopt;
  std::int64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, failure] = std::from_chars(digits.data() + begin, end, value, base);
  if (failure != std::errc() || stop != end) return std::nullopt;
  return value;
}

class Reader {
 public:
  Reader(std::string_view text, std::string file) : text_(text), file_(std::move(file)) {}

  RawSetting::Entries read() {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;  // the byte order mark of some editors
    while (at_ < text_.size()) read_line();
    return std::move(entries_);
  }

 private:
  void read_line() {
    skip_blanks();
    if (next() == '[') {
      ++at_;
      if (next() == '[') refuse("[[...]] is a list of tables, which no setting can be");
      table_ = read_path();
      expect(']', "the name of a table");
      open(table_);
    } else if (!at_end()) {
      read_entry(table_);
    }
    skip_blanks();
    if (!at_end()) refuse("a line may hold only one setting, or one table's name");
    at_ = std::min(text_.find('\n', at_), text_.size() - 1) + 1;
    ++line_;
  }

  // Reads NAME = VALUE in the table of that path.
  void read_entry(Path path) {
    skip_blanks();
    for (std::string& name : read_path()) path.push_back(std::move(name));
    expect('=', "a name");
    skip_blanks();
    if (next() == '{') {
      read_table(path);
    } else {
      add(path, read_value());
    }
  }

  // {NAME = VALUE, NAME = VALUE}
  void read_table(const Path& path) {
    add(path, RawSetting::Entries{});
    ++at_;
    skip_blanks();
    while (next() != '}') {
      read_entry(path);
      skip_blanks();
      if (next() == '}') break;
      expect(',', "a value in braces");
      skip_blanks();
    }
    ++at_;
  }

  // a, "a b", a.b
  Path read_path() {
    Path path;
    do {
      if (!path.empty()) ++at_;
      skip_blanks();
      path.push_back(read_name());
      skip_blanks();
    } while (next() == '.');
    return path;
  }

  std::string read_name() {
    if (next() == '"' || next() == '\'') return read_text();
    const std::size_t begin = at_;
    while (is_bare(next())) ++at_;
    if (at_ == begin) refuse("a name is missing");
    return std::string(text_.substr(begin, at_ - begin));
  }

  RawSetting::Value read_value() {
    if (next() == '"' || next() == '\'') return read_text();
    if (next() == '[') refuse("[...] is a list, which no setting can be");
    const std::size_t begin = at_;
    while (!at_end() && !is_blank(next()) && next() != ',' && next() != '}') ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word.empty()) refuse("a value is missing");
    if (word == "true" || word == "false") return word == "true";
    if (const auto whole = parse_whole(word)) return *whole;
    return RawSetting::Unusable{std::string(word)};
  }

  // "with \" escapes", 'without'
  std::string read_text() {
    const char quote = next();
    if (text_.substr(at_, 3) == std::string(3, quote))
      refuse("no setting can be a text of several lines");
    std::string text;
    for (++at_; next() != quote; ++at_) {
      if (at_ >= text_.size() || is_control(next())) refuse("a text must end on its line");
      text += next() == '\\' && quote == '"' ? read_escape() : next();
    }
    ++at_;
    return text;
  }

  // Leaves at_ at the letter after the backslash, for the caller to skip.
  char read_escape() {
    constexpr std::string_view kLetters = "btnfr\"\\";
    constexpr std::string_view kMeant = "\b\t\n\f\r\"\\";
    ++at_;
    const std::size_t found = kLetters.find(next());
    if (at_ >= text_.size() || found == std::string_view::npos)
      refuse("write a backslash twice in \"...\", or once in '...'");
    return kMeant[found];
  }

  void add(Path path, RawSetting::Value value) {
    const std::string name = std::move(path.back());
    path.pop_back();
    RawSetting::Entries& table = open(path);
    if (const RawSetting* before = find(table, name)) refuse_second(*before);
    append(table, name, std::move(value));
  }

  // Returns the table of that path; creates it if it does not exist.
  RawSetting::Entries& open(const Path& path) {
    if (path.size() > kTables) refuse("tables may be nested at most two deep");
    RawSetting::Entries* table = &entries_;
    for (const std::string& name : path) {
      RawSetting* inner = find(*table, name);
      if (inner == nullptr) inner = &append(*table, name, RawSetting::Entries{});
      table = inner->table();
      if (table == nullptr) refuse_second(*inner);
    }
    return *table;
  }

  RawSetting& append(RawSetting::Entries& table, const std::string& name,
                     RawSetting::Value value) const {
    const RawSetting::Line line = {.file = file_, .number = line_};
    return table.emplace_back(RawSetting::in_file(name, line, std::move(value)));
  }

  static RawSetting* find(RawSetting::Entries& table, const std::string& name) {
    const auto found = std::find_if(table.begin(), table.end(),
                                    [&](const RawSetting& one) { return one.name() == name; });
    return found == table.end() ? nullptr : &*found;
  }

  void skip_blanks() {
    while (is_blank(next())) ++at_;
  }

  // 0 at the end. A 0 in the text is never expected, so it is refused.
  char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  // True if the readable part of the line ends here.
  bool at_end() const {
    return at_ >= text_.size() || next() == '\n' || next() == '#' || text_.substr(at_, 2) == "\r\n";
  }

  void expect(char wanted, std::string_view after) {
    skip_blanks();
    if (next() != wanted) refuse(after, " must be followed by ", wanted);
    ++at_;
  }

  [[noreturn]] void refuse_second(const RawSetting& before) const {
    refuse(before.name(), " is set twice, first at ", before.origin());
  }

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... reason) const {
    base::fail(Code::invalid_argument,
               on_one_line(base::sentence(file_, ':', line_, ": ", reason...)));
  }

  std::string_view text_;
  std::string file_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1;
  Path table_;
  RawSetting::Entries entries_;
};

}  // namespace

RawSetting::Entries read_toml(std::string_view text, const std::string& file) {
  return Reader(text, file).read();
}

}  // namespace plait::plan

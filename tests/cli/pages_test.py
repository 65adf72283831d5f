"""Manual pages and completion hold what --help prints, and shells and man accept them."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from command import PATIENCE, PLAIT, CommandTest, plait

VERBS = ["run", "bench", "tune", "trace", "predict", "verify", "info"]
OPERATORS = ["matmul-all-reduce", "matmul-reduce-scatter", "matmul-all-gather", "all-gather-matmul",
             "reduce-scatter-matmul", "all-reduce-matmul"]
EXCHANGES = ["matmul-all-to-all", "all-to-all-matmul", "matmul-all-gather-columns", "all-gather-columns-matmul"]
PAGES = ["run", "tune", "verify", "info", "predict --measured", "predict llama2-70b",
         *(f"bench {name}" for name in ["matmul", "grouped", "experts", "heads", "layer", "model"]),
         *(f"bench {name}" for name in OPERATORS + EXCHANGES),
         *(f"trace {name}" for name in [*OPERATORS, *EXCHANGES, "experts", "heads"]),
         *(f"predict {name}" for name in [*OPERATORS, *EXCHANGES, "experts", "heads"])]


def options_of(page):
    """The options that --help prints, as lists of names, with the word for the value."""
    text = plait(*page.split(), "--help").stdout
    found = re.findall(r"^  ((?:-\w, )?--[\w-]+(?:, --[\w-]+)*)(?: (\S+))?", text, re.MULTILINE)
    return [(names.split(", "), value) for names, value in found]


def manual(*words):
    result = plait("man", *words)
    assert result.returncode == 0, result.stderr
    return result.stdout


class ManualTest(CommandTest):
    def test_every_verb_and_option_is_in_its_page(self):
        pages = {verb: manual(verb).replace("\\-", "-").replace("\\fR", "").replace("\\fB", "").replace("\\fI", "")
                 for verb in VERBS}
        whole = manual()
        for verb in VERBS:
            self.assertIn(f"\\fB{verb}\\fR\n", whole)
        for page in PAGES:
            with self.subTest(page):
                options = options_of(page)
                self.assertGreater(len(options), 3)
                lines = pages[page.split()[0]].splitlines()
                for names, value in options:
                    self.assertIn(" ".join([", ".join(names), value]).strip(), lines)

    def test_no_line_of_help_is_too_wide(self):
        for page in PAGES:
            lines = plait(*page.split(), "--help").stdout.splitlines()
            self.assertLessEqual(max(len(line) for line in lines), 104, page)

    def test_words_of_a_purpose_are_a_list(self):
        page = manual("bench")
        self.assertIn(".TP\n\\fBtop\\fR\nthe largest logits (matmul_top)\n.TP\n\\fBlogits\\fR\nthe product, and", page)

    def test_man_finds_nothing_to_complain_about(self):
        lint = [tool for tool in (["mandoc", "-T", "lint", "-W", "warning"],
                                  ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"]) if shutil.which(tool[0])]
        if not lint:
            self.skipTest("neither mandoc nor man is installed")
        with tempfile.TemporaryDirectory() as folder:
            for verb in ["", *VERBS]:
                file = Path(folder, f"plait-{verb}.1")
                file.write_text(manual(*verb.split()))
                for command in lint:
                    said = subprocess.run([*command, file], capture_output=True, text=True, timeout=PATIENCE)
                    complaints = said.stderr if command[0] == "man" else said.stdout
                    self.assertEqual((said.returncode, complaints), (0, ""), (command, verb))

    def test_words_that_are_no_verbs_have_help(self):
        for word, line in [("man", "plait man bench | man -l -"), ("completion", 'eval "$(plait completion bash)"')]:
            page = self.plait(word, "--help")
            self.assertEqual((page.returncode, page.stderr), (0, ""))
            self.assertIn(f"Usage: plait {word} ", page.stdout)
            self.assertIn(line, page.stdout)
            self.assertEqual(self.plait("help", word).stdout, page.stdout)
        overview = self.plait("--help").stdout
        for words in [["help"], ["help", "--help"], ["help", "help"], ["help", "-h"]]:
            self.assertEqual(self.plait(*words).stdout, overview, words)

    def test_refusals(self):
        self.assertIn("unknown verb bnech; did you mean bench?", self.refuses("man", "bnech"))
        self.assertIn("takes one verb", self.refuses("man", "bench", "run"))
        self.assertIn("takes a shell: bash, zsh or fish", self.refuses("completion", "tcsh"))
        self.assertIn("takes a shell: bash, zsh or fish", self.refuses("completion"))
        self.assertIn("unknown option --describe", self.refuses("bench", "--describe"))


class CompletionTest(CommandTest):
    def complete(self, line, folder="."):
        """Words that bash offers after the line; FILES, if it offers names of files."""
        script = """
          compopt() { [[ $* != *-o\\ default* ]] || files=1; }
          eval "$("$PLAIT_COMMAND" completion bash)"
          complete -p plait >/dev/null || exit 9
          read -ra COMP_WORDS <<<"$1"; [[ $1 != *' ' ]] || COMP_WORDS+=('')
          COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); files=
          _plait
          ((${#COMPREPLY[@]} == 0)) || printf '%s\\n' "${COMPREPLY[@]}"; [[ -z $files ]] || echo FILES"""
        # bash takes = as a word of its own.
        result = subprocess.run(["bash", "--norc", "-c", script, "-", line.replace("=", " = ")], cwd=folder,
                                capture_output=True, text=True, timeout=PATIENCE, env=self.environment)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout.split()

    def test_verbs_options_and_values(self):
        for line, wanted in [
            ("plait ", [*VERBS, "help", "man", "completion", "-h", "--help", "--version"]),
            ("plait tr", ["trace"]),
            ("plait completion ", ["bash", "fish", "zsh"]),
            ("plait man in", ["info"]),
            ("plait trace ", [*OPERATORS, *EXCHANGES, "experts", "heads", "-h", "--help"]),
            ("plait trace heads --head lo", ["loss", "loss-alone", "log-probs"]),
            ("plait trace experts --model gpt", ["gpt-oss-quarter"]),
            ("plait bench matmul-", [one for one in OPERATORS + EXCHANGES if one.startswith("matmul-")]),
            ("plait predict --mea", ["--measured"]),
            ("plait run --bind ", ["core", "numa", "none"]),
            ("plait run --bind=n", ["numa", "none"]),
            ("plait run --lin", ["--linger"]),
            ("plait run -n 2 --time", ["--timeout"]),
            ("plait run -n ", []),
            ("plait bench matmul --dtype ", ["f32", "bf16", "f16"]),
            ("plait bench matmul-all-reduce -d b", ["bf16"]),
            ("plait bench matmul-all-reduce --schedule serial,f", ["serial,fused"]),
            ("plait tune --op all-g", ["all-gather-matmul", "all-gather-columns-matmul"]),
            ("plait tune --model llama2-7", ["llama2-7b", "llama2-70b"]),
            ("plait bench layer r", ["row"]),
            ("plait bench model bloom-1", ["bloom-176b"]),
            ("plait predict llama2-70b --device asc", ["ascend-910b"]),
            ("plait verify --transport t", ["threads", "tcp"]),
            ("plait bench matmul --json ", ["FILES"]),
        ]:
            with self.subTest(line):
                self.assertEqual(self.complete(line), wanted)

    def test_every_option_is_offered(self):
        for page in PAGES:
            with self.subTest(page):
                names = {name for names, _ in options_of(page) for name in names}
                self.assertLessEqual(names, set(self.complete(f"plait {page.replace('--measured', '--measured f')} -")))

    def test_run_completes_the_command_after_its_options(self):
        for line in ("plait run -n 2 prin", "plait run -n 2 -p -- prin", "plait run --bind=core prin"):
            self.assertIn("printf", self.complete(line), line)
        self.assertEqual(self.complete("plait run -n 2 -- printf --dt"), ["FILES"])

    def test_offered_values_are_accepted(self):
        for dtype in self.complete("plait bench matmul --dtype "):
            result = self.plait("bench", "matmul", "--m", 1, "--n", 16, "--k", 16, "--dtype", dtype, "--repeat", 1)
            self.assertEqual(result.returncode, 0, result.stderr)
        for device in self.complete("plait predict matmul-all-reduce --device "):
            result = self.plait("predict", "matmul-all-reduce", "--m", 64, "--n", 64, "--k", 64, "--device", device,
                                "--link", "25gbit", "--ranks", 2)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_other_shells_accept_their_scripts(self):
        for shell in ("zsh", "fish"):
            script = plait("completion", shell).stdout
            for verb in VERBS:
                self.assertIn(verb, script)
            for names, _ in options_of("bench matmul-all-reduce"):
                self.assertIn(names[-1] if shell == "zsh" else f"-l {names[-1][2:]} ", script)
            if shutil.which(shell):
                said = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, timeout=PATIENCE)
                self.assertEqual((said.returncode, said.stderr), (0, ""), shell)

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish_completes(self):
        with tempfile.TemporaryDirectory() as home:
            environment = {**os.environ, "HOME": home, "XDG_CONFIG_HOME": home, "XDG_DATA_HOME": home,
                           "PATH": f"{Path(PLAIT).parent}:{os.environ['PATH']}"}
            for line, wanted in [("plait ver", "verify"), ("plait bench lay", "layer"), ("plait run --bind n", "numa"),
                                 ("plait bench matmul --dty", "--dtype"), ("plait bench matmul --dtype b", "bf16")]:
                said = subprocess.run(["fish", "-c", f"plait completion fish | source; complete -C '{line}'"],
                                      env=environment, capture_output=True, text=True, timeout=PATIENCE)
                self.assertIn(wanted, [word.split("\t")[0] for word in said.stdout.splitlines()], said.stderr)


if __name__ == "__main__":
    unittest.main()

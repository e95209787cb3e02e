"""Secrets are masked, and nothing else is."""

import shlex

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from joulewise.store.redact import MASK, mask

HF, OPENAI, GITHUB = "hf_" + "aB3" * 11, "sk-proj-" + "x9Y" * 12, "ghp_" + "Zz0" * 12
AWS = "AKIA" + "IOSFODNN7EXAMPLE"
JWT = "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("given_line", "kept_line"),
    [
        ("train.py --token abc --lr 0.1", "train.py --token *** --lr 0.1"),
        ("train.py --token=abc", "train.py --token=***"),
        ("train.py -token abc", "train.py -token ***"),
        ("train.py --api-key=X --epochs 3", "train.py --api-key=*** --epochs 3"),
        ("train.py --api_key X", "train.py --api_key ***"),
        ("train.py --apikey X", "train.py --apikey ***"),
        ("train.py --wandb-api-key X", "train.py --wandb-api-key ***"),
        ("train.py --hf_token X", "train.py --hf_token ***"),
        ("train.py --password 'two words'", "train.py --password ***"),
        ("train.py --db.password=X", "train.py --db.password=***"),
        ("train.py --passwd X --secret Y", "train.py --passwd *** --secret ***"),
        ("train.py --client-secret X", "train.py --client-secret ***"),
        ("train.py --aws-secret-access-key X", "train.py --aws-secret-access-key ***"),
        ("train.py --private-key X", "train.py --private-key ***"),
        ("train.py hub.token=X", "train.py hub.token=***"),
        ("env WANDB_API_KEY=X python train.py", "env WANDB_API_KEY=*** python train.py"),
        ("env HF_TOKEN=X MYSQL_PWD=Y python", "env HF_TOKEN=*** MYSQL_PWD=*** python"),
        (f"train.py --hub {HF}", "train.py --hub ***"),
        (f"train.py {OPENAI}", "train.py ***"),
        (f"train.py --auth-with={GITHUB}", "train.py --auth-with=***"),
        (f"train.py {AWS}", "train.py ***"),
        (f"train.py --header {JWT}", "train.py --header ***"),
        (f"sh -c 'login {HF} && train'", "sh -c 'login *** && train'"),
        ("sh -c 'login --token=abc; run'", "sh -c 'login --token=*** run'"),
        ("sh -c 'login  --password \"a b\" && run'", "sh -c 'login  --password *** && run'"),
        ("sh -c 'HF_TOKEN=abc python train.py'", "sh -c 'HF_TOKEN=***'"),
        ("curl -H 'Authorization: Bearer abc'", "curl -H 'Authorization: ***'"),
        ("curl -H 'X-Api-Key: abc'", "curl -H 'X-Api-Key: ***'"),
        ("get https://me:pw@host/data.tar", "get https://***@host/data.tar"),
        ("get --url=postgresql://me:pw@db/jobs", "get --url=postgresql://***@db/jobs"),
        ("get 'https://h/x?a=1&access_token=X&b=2'", "get 'https://h/x?a=1&access_token=***&b=2'"),
        ("train.py --apiToken abc --authToken=abc", "train.py --apiToken *** --authToken=***"),
        ("train.py --dbPassword=abc --hftoken abc", "train.py --dbPassword=*** --hftoken ***"),
        ("train.py +logger.token=abc lr=1", "train.py +logger.token=*** lr=1"),
        ("train.py ++logger.api_key=abc", "train.py ++logger.api_key=***"),
        ("train.py --wandb-key abc --api-keys a,b", "train.py --wandb-key *** --api-keys ***"),
        ("train.py --passcode 12 --pat abc", "train.py --passcode *** --pat ***"),
        ("train.py --developer-token abc", "train.py --developer-token ***"),
        ("train.py --APIKey abc --accessTokens x", "train.py --APIKey *** --accessTokens ***"),
        ("train.py --token -abc --lr 0.1", "train.py --token *** --lr 0.1"),
        ("curl -u me:pass host", "curl -u me:*** host"),
        ("curl --user=me:pa:ss host", "curl --user=me:*** host"),
        ("curl -ume:pass host", "curl -ume:*** host"),
        ("get -u https://me:pw@host/", "get -u https://***@host/"),
        ("get -uhttps://me:pw@host/", "get -uhttps://***@host/"),
        ("mysql -uroot -ppass db", "mysql -uroot -p*** db"),
        ("env A=1 /usr/bin/mysqldump -p8080 db", "env A=1 /usr/bin/mysqldump -p*** db"),
        ("sh -c 'mariadb -ppass db | wc'", "sh -c 'mariadb -p*** db | wc'"),
        ("sshpass -ppass ssh -p22 host", "sshpass -p*** ssh -p22 host"),
        ("sshpass -p pass ssh -p 22 host", "sshpass -p *** ssh -p 22 host"),
        ("get 'https://h/x?sig=abc&b=2'", "get 'https://h/x?sig=***&b=2'"),
        ("get --url=https://h/x?a=1&token=abc", "get --url=https://h/x?a=1&token=***"),
        ("get 'https://h/x?X-Amz-Signature=abc#f'", "get 'https://h/x?X-Amz-Signature=***#f'"),
        ("get postgresql://u:p@ss@h/db", "get postgresql://***@h/db"),
        ("train.py --token --lr 0.1", "train.py --token --lr 0.1"),
        ("train.py --token", "train.py --token"),
    ],
)
def test_secrets_are_masked(given_line, kept_line):
    assert mask(shlex.split(given_line)) == tuple(shlex.split(kept_line))


@pytest.mark.parametrize(
    ("argument", "kept"),
    [
        ('--config={"api_key": "abc", "lr": 1}', '--config={"api_key": "***", "lr": 1}'),
        ('{"a":{"apiToken":"a\\"bc"},"n":2}', '{"a":{"apiToken":"***"},"n":2}'),
        (r"{\"api_key\": \"abc\", \"n\": 2}", r"{\"api_key\": \"***\", \"n\": 2}"),
        ("logger={api_key: abc, lr: 1}", "logger={api_key: ***, lr: 1}"),
        ("import wandb; wandb.login(key='abc')", "import wandb; wandb.login(key='***')"),
        ("hub.login('abc', True)", "hub.login('***', True)"),
        ('run(token = "abc", lr=3)', 'run(token = "***", lr=3)'),
        ("os.environ['HF_TOKEN'] = 'abc'", "os.environ['HF_TOKEN'] = '***'"),
    ],
)
def test_secrets_in_json_and_in_scripts_are_masked(argument, kept):
    assert mask([argument]) == (kept,)
    assert mask([kept]) == (kept,)


@pytest.mark.parametrize(
    "argument",
    [
        '--config={"lr": 0.1, "tokenizer": "bert", "pad_token": "<pad>", "key": "image"}',
        "import train; train.main(lr='0.1', key='image', max_tokens='3'); print('a: b')",
        "logger={name: csv, max_tokens: 3}",
    ],
)
def test_other_values_in_json_and_in_scripts_are_not_masked(argument):
    assert mask([argument]) == (argument,)


@pytest.mark.parametrize(
    "line",
    [
        "python train.py --lr 0.1 --batch-size 128",
        "train.py --tokenizer bert --max-tokens 128 --num-tokens=4 --token-dim 64",
        "train.py --key-dim 3 --keys a b --keyword x --num-key-value-heads 8",
        "train.py --passes 2 --bypass --compass=north",
        "train.py --author me --authors=you --oauth2-flow code",
        "train.py --pad-token-id 0 --pad-token '<pad>' --eos_token=</s> --tokens_per_batch 4096",
        "train.py optimizer.lr=0.1 model=resnet50 +trainer.max_epochs=3",
        "train.py --sk-learn --hf_model gpt2 --ghp x --data s3://bucket/key",
        "train.py https://example.org/a@b/data user@host:/path me@example.org",
        "train.py --seed 42 /data/password-list/train --secretary no",
        "torchrun --nproc_per_node=2 --master_addr 10.0.0.1 train.py",
        "sh -c 'python train.py && echo done'",
        "train.py --token-dropout 0.1 --monkey x --sort-key a --image-key=b --maxToken 3",
        "docker run -u 1000:1000 -p8080:80 img",
        "docker run -u1000:1000 -p 8080 img",
        "serve.py -p8080 -unbuffered --db mysql",
        "python -u train.py https://h/x?page=2&keyword=a",
    ],
)
def test_options_of_a_training_are_not_masked(line):
    assert mask(shlex.split(line)) == tuple(shlex.split(line))


@given(st.lists(st.text(max_size=40), max_size=12))
def test_as_many_arguments_come_out_and_a_second_time_changes_nothing(arguments):
    once = mask(arguments)
    assert len(once) == len(arguments)
    assert mask(once) == once


@given(
    before=st.lists(st.sampled_from(["--lr", "0.1", "train.py", "--flag"]), max_size=4),
    name=st.sampled_from(["--token", "--api-key", "--password", "--hf-token", "--client_secret"]),
    secret=st.text("abcdefghijklmnopqrstuvwxyz0123456789/+=@:", min_size=6, max_size=40),
    joined=st.booleans(),
)
def test_no_secret_after_its_name_is_left(before, name, secret, joined):
    arguments = [f"{name}={secret}"] if joined else [name, secret]
    masked = mask([*before, *arguments])
    assert masked[: len(before)] == tuple(before)
    assert MASK in masked[-1]
    assert secret not in " ".join(masked)


@given(
    name=st.sampled_from(["--lr", "--epochs", "--tokenizer", "--max-tokens", "--key-dim", "-b"]),
    value=st.one_of(
        st.integers().map(str),
        st.floats().map(str),
        st.text("abcdefghijklmnopqrstuvwxyz-./", min_size=1, max_size=20).map(lambda t: f"m{t}"),
    ),
    joined=st.booleans(),
)
def test_no_plain_argument_is_touched(name, value, joined):
    arguments = ("train.py", f"{name}={value}") if joined else ("train.py", name, value)
    assert mask(arguments) == arguments


@pytest.mark.parametrize(
    ("given_line", "kept_line"),
    [
        ("tool -pSECRET", "tool -p***"),
        ("tool -phunter2! run", "tool -p*** run"),
        ("tool 'password: hunter2'", "tool 'password: ***'"),
        ("tool password: hunter2 db", "tool password: *** db"),
        ("sh -c 'tool -pSECRET password: abc'", "sh -c 'tool -p*** password: ***'"),
        ("curl --cookie sid=abc host", "curl --cookie *** host"),
        ("curl --cookie=sid=abc host", "curl --cookie=*** host"),
        ("scp me:pw@host:data .", "scp me:***@host:data ."),
        ("tool --db me:pw@host", "tool --db me:***@host"),
        ("tool password:hunter2 lr:0.1", "tool password:*** lr:0.1"),
        ("tool --set db.password:hunter2", "tool --set db.password:***"),
        ("tool api_token:abc,lr:1", "tool api_token:***,lr:1"),
        ("openssl enc -k pass:hunter2", "openssl enc -k pass:***"),
        ("tool token:pw@host", "tool token:***@host"),
        ("mysqldump -phunter2 db", "mysqldump -p*** db"),
        ("mycli -phunter2", "mycli -p***"),
        ("7z a -phunter2 data.7z", "7z a -p*** data.7z"),
        ("unrar x -phunter2 data.rar", "unrar x -p*** data.rar"),
        ("mongosh -u me -p hunter2 host", "mongosh -u me -p *** host"),
        ("/usr/bin/mongodump -phunter2", "/usr/bin/mongodump -p***"),
    ],
)
def test_a_secret_without_an_option_of_its_own_is_masked(given_line, kept_line):
    assert mask(shlex.split(given_line)) == tuple(shlex.split(kept_line))


@pytest.mark.parametrize(
    "line",
    [
        "tool -p 8080",
        "tool -p8080 -p0.5 -p1e-3",
        "docker run -p8080:80 image:1.2@sha256:0123abcd",
        "gcc -pthread -pedantic -pipe -p",
        "tool --passes 3 --patience=3 --cookie-jar file",
        "git clone git@github.com:group/project",
        "tool -p/Data/Set -p./Data -pname=Value",
        "tool 'pass: 2' 'epoch: 3' 'lr: 0.1' pass: 2",
        "rsync host:folder/a@b .",
        "ffmpeg -pix_fmt yuv420p -preset slow",
        "srun -pgpu2 -n4 train",
        "mysql -p db",
        "docker run -v secrets:/run/secrets -v token:~/x auth:latest my-auth:v2",
        "tool pass:2 pad_token:none max_tokens:4096 key:image",
    ],
)
def test_ordinary_options_that_look_similar_are_not_masked(line):
    assert mask(shlex.split(line)) == tuple(shlex.split(line))


LETTERS = "abcdefghijklmnopqrstuvwxyz"
SECRETS = st.text(LETTERS + LETTERS.upper() + "0123456789", min_size=8, max_size=20).map(
    "Q7".__add__
)


@given(
    SECRETS,
    st.sampled_from(
        [
            "-p{}",
            "--password={}",
            "password: {}",
            "password:{}",
            "--cookie={}",
            "Authorization: Bearer {}",
            "me:{}@host",
            "DB_PASSWORD={}",
            '{{"password": "{}"}}',
        ]
    ),
)
def test_whatever_the_secret_nothing_of_it_is_left(secret, form):
    kept = mask(["tool", form.format(secret), "--epochs", "3"])
    assert secret not in " ".join(kept)
    assert kept[0] == "tool"
    assert kept[2:] == ("--epochs", "3")


@given(st.text(LETTERS, min_size=1, max_size=12), st.integers(0, 65535))
def test_lower_case_and_numbers_behind_p_are_no_secret(word, number):
    assume(mask(["tool", f"--p{word}", "value"])[2] == "value")  # -pwd is an option of that name
    arguments = ("tool", f"-p{word}", f"-p{number}", "-p", str(number))
    assert mask(arguments) == arguments

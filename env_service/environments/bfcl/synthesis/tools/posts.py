"""TwitterAPI: an account's posts, by their numbers, and whom it follows."""

import re
from typing import Any

from env_service.environments.bfcl.synthesis.sources import Arguments, Source, Tool

_POST = {"tweet_id": "post"}


def _a_post(s: Source, x: Any) -> Arguments | None:
    there = sorted(x.tweets)
    return {"tweet_id": s.old("post", there)} if there else None


def _a_post_if_in(s: Source, x: Any) -> Arguments | None:
    return _a_post(s, x) if x.authenticated else None


def _a_post_not_shared(s: Source, x: Any) -> Arguments | None:
    there = sorted(set(x.tweets).difference(x.retweets.get(x.username, ())))
    return {"tweet_id": s.old("post", there)} if x.authenticated and there else None


def _a_discussed_post(s: Source, x: Any) -> Arguments | None:
    # Scenarios name posts of old remarks by strings, which the tool does not find.
    there = sorted(key for key, remarks in x.comments.items() if remarks and isinstance(key, int))
    return {"tweet_id": s.old("post", there)} if there else None


def _a_text(s: Source, x: Any) -> Arguments | None:
    text = {
        "content": s.sentence(),
        "tags": [f"#{s.word()}" for _ in range(s.number(1, 2))],
        "mentions": [f"@{s.word()}"],
    }
    return text if x.authenticated else None


def _an_author(s: Source, x: Any) -> Arguments | None:
    authors = sorted({post["username"] for post in x.tweets.values()})
    return {"username": s.pick(authors)} if authors else None


def _a_keyword(s: Source, x: Any) -> Arguments | None:
    texts = " ".join(post["content"] for post in x.tweets.values())
    words = sorted({*re.findall(r"(?<![\w.#])[A-Za-z]{5,}(?![\w.])", texts)})
    return {"keyword": s.pick(words)} if words else None


def _a_followed_user(s: Source, x: Any) -> Arguments | None:
    fits = x.authenticated and x.following_list
    return {"username_to_unfollow": s.pick(sorted(x.following_list))} if fits else None


TOOLS = {
    "authenticate_twitter": Tool(
        lambda s, x: None if x.authenticated else {"username": x.username, "password": x.password},
        (
            "log me in to my social media account {username} with the password {password}",
            "sign in for posting, user {username}, password {password}",
            "open my posting account: I am {username}, and the password is {password}",
        ),
    ),
    "comment": Tool(
        lambda s, x: (there := _a_post_if_in(s, x)) and {**there, "comment_content": s.sentence()},
        (
            "reply '{comment_content}' to {tweet_id}",
            "leave '{comment_content}' as a remark under {tweet_id}",
            "respond to {tweet_id} with '{comment_content}'",
        ),
        kinds=_POST,
    ),
    "follow_user": Tool(
        lambda s, x: {"username_to_follow": s.word()} if x.authenticated else None,
        (
            "follow {username_to_follow}",
            "subscribe me to {username_to_follow}",
            "start following {username_to_follow}",
        ),
    ),
    "get_tweet": Tool(
        _a_post,
        ("show me {tweet_id}", "read {tweet_id} to me", "open {tweet_id} for me"),
        kinds=_POST,
    ),
    "get_tweet_comments": Tool(
        _a_discussed_post,
        (
            "show what people replied to {tweet_id}",
            "list the remarks under {tweet_id}",
            "tell me the replies that {tweet_id} got",
        ),
        kinds=_POST,
    ),
    "get_user_stats": Tool(
        _an_author,
        (
            "give me the posting figures of {username}",
            "tell me how many posts {username} has",
            "show the statistics of the account {username}",
        ),
    ),
    "get_user_tweets": Tool(
        _an_author,
        (
            "list everything that {username} has posted",
            "show all posts of {username}",
            "let me read the posts by {username}",
        ),
        kinds={"id": "post"},
    ),
    "list_all_following": Tool(
        lambda s, x: {} if x.authenticated else None,
        (
            "list everybody I follow",
            "tell me whom I am following",
            "show the accounts that I follow",
        ),
    ),
    "mention": Tool(
        lambda s, x: (
            (there := _a_post(s, x)) and {**there, "mentioned_usernames": [f"@{s.word()}"]}
        ),
        (
            "name {mentioned_usernames} in {tweet_id}",
            "tag {mentioned_usernames} in {tweet_id}",
            "draw {mentioned_usernames} into {tweet_id}",
        ),
        kinds=_POST,
    ),
    "post_tweet": Tool(
        _a_text,
        (
            "post '{content}' with {tags}, naming {mentions}",
            "publish the text '{content}', tags {tags}, for {mentions} to see",
            "put up a post '{content}', tagged {tags} and naming {mentions}",
        ),
        kinds={"id": "post"},
    ),
    "posting_get_login_status": Tool(
        lambda s, x: {},
        (
            "check whether I am logged in for posting",
            "tell me if my social media session is active",
            "see if I am signed in to my social media account",
        ),
    ),
    "retweet": Tool(
        _a_post_not_shared,
        ("share {tweet_id}", "pass {tweet_id} on to my followers", "spread {tweet_id}"),
        kinds=_POST,
    ),
    "search_tweets": Tool(
        _a_keyword,
        (
            "search all posts for '{keyword}'",
            "show the posts in which '{keyword}' occurs",
            "look for posts about '{keyword}'",
        ),
        kinds={"id": "post"},
    ),
    "unfollow_user": Tool(
        _a_followed_user,
        (
            "stop following {username_to_unfollow}",
            "end my subscription to {username_to_unfollow}",
            "take {username_to_unfollow} off the accounts I follow",
        ),
    ),
}
"""By the tool's name."""
